"""Failing passes affect readiness, a metric and Events until one succeeds."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count

import pytest

from karpenter_core.controllers.disruption import controller
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.passes import (
    FAILING_PASSES,
    THROTTLED_PASSES,
    PassHealth,
    pass_failure_gauge,
    pool_failure_reporter,
)
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime, PeriodicLoop
from karpenter_core.errors import (
    FencedError,
    KarpenterError,
    NodeClassNotReadyError,
    ThrottledError,
)
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.lifecycle.nodepool.failing_passes import PASSES_SUCCEED
from karpenter_core.provider.host.facade import Providers
from karpenter_core.scheduling.whatif.first_fit import FirstFitPlacement
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing import builders
from karpenter_core.testing.state_builders import synced_state
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

WITHOUT_ELECTION = "--disable-leader-election"


def throttled(seconds):
    return ThrottledError("slowly", retry_after=timedelta(seconds=seconds))


def looped(steps, **options):
    """Run a loop through these steps (None succeeds); return the problem after each."""
    seen = []

    async def main():
        metrics = Metrics()
        runtime = ControllerRuntime(
            clock=LoopClock(), new_id=map(str, count()).__next__, metrics=metrics
        )
        runtime.passes.subscribe(pass_failure_gauge(metrics))
        left, done = list(steps), asyncio.Event()

        async def step():
            seen.append(runtime.passes.problem)
            if not left:
                done.set()
                return 1.0
            error = left.pop(0)
            if error is not None:
                raise error
            return 1.0

        running = asyncio.create_task(
            PeriodicLoop("example", step, runtime=runtime, **options).run()
        )
        await done.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtual(main())
    return seen[1:]


def test_passes_that_fail_in_a_row_are_a_problem_until_one_succeeds():
    """A few failures are none."""
    seen = looped([ValueError("odd")] * (FAILING_PASSES + 1) + [None])

    assert seen[: FAILING_PASSES - 1] == [None] * (FAILING_PASSES - 1)
    assert "example has failed 5 times in a row: ValueError: odd" in seen[FAILING_PASSES - 1]
    assert "6 times" in seen[FAILING_PASSES]
    assert seen[-1] is None


@pytest.mark.parametrize(
    ("error", "text"),
    [(KarpenterError(), "KarpenterError"), (ValueError(), "ValueError"), (KeyError("a"), "'a'")],
)
def test_an_error_without_a_message_is_named_by_its_kind(error, text):
    seen = looped([error] * FAILING_PASSES)
    assert f"{FAILING_PASSES} times in a row: " in seen[-1]
    assert text in seen[-1]


def test_a_success_in_between_restarts_the_count():
    """Four, one, four."""
    failures = [ValueError("odd")] * (FAILING_PASSES - 1)

    assert set(looped([*failures, None, *failures])) == {None}


@pytest.mark.parametrize(
    "error", [ThrottledError("slowly"), NodeClassNotReadyError("no subnets"), FencedError("lost")]
)
def test_an_expected_wait_is_no_problem_for_a_while(error):
    """Unlike failures."""
    assert set(looped([error] * (FAILING_PASSES + 2))) == {None}


@pytest.mark.parametrize("error", [ThrottledError("slowly"), throttled(seconds=3)])
def test_passes_that_only_get_throttled_are_a_problem_in_the_end(error):
    """Nothing is collected meanwhile, say; one success takes it back, and a few are no problem."""
    seen = looped([*[error] * (THROTTLED_PASSES + 1), None, *[error] * (THROTTLED_PASSES - 1)])

    assert set(seen[: THROTTLED_PASSES - 1]) == {None}
    assert seen[THROTTLED_PASSES - 1] == "example has failed 20 times in a row: slowly"
    assert seen[THROTTLED_PASSES] == "example has failed 21 times in a row: slowly"
    assert set(seen[THROTTLED_PASSES + 1 :]) == {None}


def test_failures_in_between_count_beside_throttled_passes():
    """Two failures and twenty throttled passes, in whatever order."""
    slowly, odd = ThrottledError("slowly"), ValueError("odd")
    seen = looped([odd, *[slowly] * (THROTTLED_PASSES - 1), odd, slowly])

    assert set(seen[:-1]) == {None}
    assert seen[-1] == "example has failed 22 times in a row: slowly"


def test_work_that_is_not_vital_is_no_problem_of_the_process():
    """Prices of a plug-in, say."""
    assert set(looped([ValueError("odd")] * 9, is_vital=False)) == {None}


def test_an_event_is_published_on_every_pool_while_passes_fail_and_not_after():
    pools = [builders.node_pool("a"), builders.node_pool("b")]
    health, notices = PassHealth(), []
    health.subscribe(pool_failure_reporter(synced_state(*pools).snapshot, notices.append))
    streak = health.streak("provisioning")
    for _ in range(FAILING_PASSES):
        assert notices == []
        streak.failed(ValueError("odd"))
    assert [notice.regarding.name for notice in notices] == ["a", "b"]
    assert notices[0].message.startswith("pass of controller provisioning")

    streak.succeeded()
    assert len(notices) == 2


def test_loops_of_one_name_are_counted_separately():
    """One of them succeeding does not hide the other."""
    health = PassHealth()
    first, second = health.streak("interruption"), health.streak("interruption")
    for _ in range(FAILING_PASSES):
        first.failed(ValueError("odd"))
        second.succeeded()

    assert health.problem is not None


def condition(pool):
    conditions = pool["status"].get("conditions", ())
    return next((each for each in conditions if each["type"] == PASSES_SUCCEED), None)


def test_a_stalled_loop_is_reported_to_readiness_and_every_pool(tmp_path, monkeypatch):
    """And all is well when it succeeds again."""
    broken = []

    def failing(*_, **__):
        if broken:
            raise ValueError("min() arg is an empty sequence")
        return ()

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        broken.append(True)
        await scene.cluster.clock.sleep(180)
        failures = running.process.servers.failures()
        assert "disruption has failed" in failures["passes"]
        reported = scene.events("PassFailing")
        assert {event["involvedObject"]["kind"] for event in reported} == {"NodePool"}
        assert running.metric('karpenter_pass_failures{controller="disruption"}') >= FAILING_PASSES
        said = condition(scene.pool("general"))
        assert (said["status"], said["reason"]) == ("False", "PassFailing")
        assert "disruption: ValueError: min() arg is an empty sequence" in said["message"]

        broken.clear()
        await scene.settle(lambda: not running.process.servers.failures(), seconds=120)
        assert running.metric('karpenter_pass_failures{controller="disruption"}') == 0
        await scene.settle(lambda: condition(scene.pool("general")) is None, seconds=10)

    monkeypatch.setattr(controller.StaleMarkFinder, "find", failing)
    run_controller(tmp_path, scenario)


def test_throttled_garbage_collection_is_reported_to_readiness(tmp_path, monkeypatch):
    """Instances without an owner cost money meanwhile."""
    listing = Providers.list_instances
    busy = []

    async def throttled_at_times(self, provider):
        if busy:
            raise ThrottledError("DescribeInstances: RequestLimitExceeded")
        return await listing(self, provider)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        busy.append(True)
        await scene.cluster.clock.sleep(300)
        assert not running.process.servers.failures()
        await scene.settle(running.process.servers.failures, seconds=1800)
        reported = running.process.servers.failures()["passes"]
        assert "nodeclaim.garbagecollection has failed 20 times in a row: Describe" in reported

        busy.clear()
        await scene.settle(lambda: not running.process.servers.failures(), seconds=120)

    monkeypatch.setattr(Providers, "list_instances", throttled_at_times)
    run_controller(tmp_path, scenario)


def apart(name, replicas, **pod):
    """Make a Deployment of which each pod has a node of its own."""
    made = deployment(name, replicas, **pod)
    made["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                }
            ]
        }
    }
    return made


async def drifting(scene, odd):
    """Let three nodes with a pod each, and one with the odd pod, drift."""
    drifts = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
    scene.cluster.apply([NODE_CLASS, node_pool(disruption=drifts), apart("web", 3), odd])
    running = scene.start(WITHOUT_ELECTION)
    await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=60)
    first = {node["metadata"]["name"] for node in scene.nodes()}
    (kept,) = (
        pod["spec"]["nodeName"] for pod in scene.pods() if pod["metadata"]["labels"]["app"] == "odd"
    )
    template = {"metadata": {"labels": {"example.com/generation": "second"}}}
    patch = {"spec": {"template": template}}
    scene.cluster.server.registry.patch(NODE_POOLS, patch, "general", "")

    def stay():
        return first & {node["metadata"]["name"] for node in scene.nodes()}

    return running, kept, stay


def test_a_pod_that_cannot_be_judged_keeps_its_node_and_no_other(tmp_path, monkeypatch):
    """Its node says why; all others that have drifted are replaced."""
    place = FirstFitPlacement.place

    def placing(self, works):
        if any(pod.shape.labels.get("app") == "odd" for _, pods in works for pod in pods):
            raise ValueError("min() arg is an empty sequence")
        place(self, works)

    async def scenario(scene):
        running, kept, stay = await drifting(scene, apart("odd", 1))
        await scene.settle(lambda: stay() == {kept}, seconds=600)

        reported = scene.events("JudgementFailed")
        assert {(e["involvedObject"]["kind"], e["involvedObject"]["name"]) for e in reported} >= {
            ("Node", kept)
        }
        assert all("min() arg is an empty sequence" in event["message"] for event in reported)
        failed = 'karpenter_judgements_failed_total{controller="disruption",kind="Node"}'
        assert running.metric(failed) > 0
        assert not running.process.servers.failures()

    monkeypatch.setattr(FirstFitPlacement, "place", placing)
    run_controller(tmp_path, scenario)


def test_a_pod_spread_over_a_key_that_nothing_has_keeps_no_node(tmp_path):
    """The spread is a preference; its own node is replaced too."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "example.com/nowhere",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "odd"}},
    }

    async def scenario(scene):
        odd = apart("odd", 1)
        odd["spec"]["template"]["spec"]["topologySpreadConstraints"] = [spread]
        running, _, stay = await drifting(scene, odd)
        await scene.settle(lambda: not stay(), seconds=600)

        assert not scene.events("JudgementFailed")
        assert not running.process.servers.failures()

    run_controller(tmp_path, scenario)
