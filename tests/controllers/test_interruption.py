"""Announced interruptions are handled by a whole controller."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from karpenter_core.errors import ApiError, CloudProviderError
from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_provider_kwok.cloud import KwokCloud
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

WITHOUT_ELECTION = "--disable-leader-election"
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
SPOT = {
    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
}
RECLAIM = [{"fault": "reclaim", "notice": "2m", "count": 1}]
RECEIVED = "karpenter_interruption_received_messages_total"


class Cloud:
    """Faults of the simulated cloud that a test changes while it runs."""

    def __init__(self, folder):
        self._path = folder / "faults.json"
        self._path.write_text("[]")
        self.option = f"--kwok-faults-file={self._path}"

    def suffer(self, *faults):
        self._path.write_text(json.dumps(list(faults)))


def names(objects):
    return {each["metadata"]["name"] for each in objects}


def reason_of(claim) -> str:
    for condition in claim.get("status", {}).get("conditions", []):
        if condition["type"] == "DisruptionReason":
            return condition["reason"]
    return ""


async def grown(scene, *arguments, replicas=1, **pod):
    """Spot nodes with one running pod each."""
    web = deployment("web", replicas, cpu="3", **pod)
    web["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP, template=SPOT), web])
    running = scene.start(WITHOUT_ELECTION, *arguments)
    await scene.settle(lambda: len(scene.pods("Running")) == replicas, seconds=60)
    await scene.cluster.clock.sleep(10)
    return running, sorted(names(scene.nodes()))


def offering_of(node):
    labels = node["metadata"]["labels"]
    keys = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")
    return tuple(labels[key] for key in keys)


def test_a_reclaimed_node_is_replaced_before_it_ends(tmp_path):
    """Drained, replaced elsewhere and acknowledged within the two minutes that the cloud gives."""
    faults = Cloud(tmp_path)

    async def scenario(scene):
        running, (old,) = await grown(scene)
        first_offering = offering_of(scene.nodes()[0])
        faults.suffer(*RECLAIM)
        await scene.settle(lambda: names(scene.claims()) - {old}, seconds=15)
        replaced = scene.cluster.clock.monotonic()
        (claim,) = [each for each in scene.claims() if each["metadata"]["name"] == old]
        assert reason_of(claim) == "SpotInterruption"
        announced = claim["metadata"]["annotations"]["karpenter.sh/nodeclaim-termination-timestamp"]
        left = datetime.fromisoformat(announced) - scene.cluster.clock.now()
        assert timedelta(seconds=100) < left <= timedelta(seconds=120)

        await scene.settle(lambda: old not in names(scene.nodes()), seconds=60)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=10)
        assert scene.cluster.clock.monotonic() - replaced < 60
        (node,) = scene.nodes()
        assert offering_of(node) != first_offering

        kind = 'message_type="spot_interrupted",provider="kwok"'
        assert running.metric(f"{RECEIVED}{{{kind}}}") == 1
        deleted = 'karpenter_interruption_deleted_messages_total{provider="kwok"}'
        assert running.metric(deleted) == 1
        event_kinds = {event["involvedObject"]["kind"] for event in scene.events("SpotInterrupted")}
        assert event_kinds == {"Node", "NodeClaim"}
        assert scene.events("TerminatingOnInterruption")
        (evicted,) = scene.events("Evicted")
        assert evicted["message"] == "Evicted pod: SpotInterruption"
        (entry,) = running.process.runtime.journal.latest(kind="disrupt")
        assert (entry.method, entry.reason) == ("interruption", "SpotInterruption")
        assert [(item.node, item.pods) for item in entry.candidates] == [(old, 1)]
        assert entry.price_per_hour_before.amount > 0

    run_controller(tmp_path, scenario, arguments=[faults.option])


def test_the_reason_of_an_interruption_stays_while_its_deletion_fails(tmp_path):
    """The disruption loop runs in between, and must not take it for a command's mark."""
    faults = Cloud(tmp_path)

    async def scenario(scene):
        _, (old,) = await grown(scene)
        scene.cluster.frontend.faults.add(
            RequestFault(matches=matching("DELETE", f"/nodeclaims/{old}"), times=None, status=500)
        )
        faults.suffer(*RECLAIM)
        await scene.settle(lambda: reason_of(scene.claims()[0]) == "SpotInterruption", seconds=15)

        reasons = set()
        for _ in range(45):
            await scene.cluster.clock.sleep(1)
            (claim,) = scene.claims()
            reasons.add(reason_of(claim))

        assert reasons == {"SpotInterruption"}

    run_controller(tmp_path, scenario, arguments=[faults.option])


def test_protected_pod_has_its_replacement_before_the_instance_ends(tmp_path):
    """It may not be evicted; its node goes all the same, and it is ended with its grace period."""
    faults = Cloud(tmp_path)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }

    async def scenario(scene):
        _, (old,) = await grown(scene, terminationGracePeriodSeconds=20)
        scene.cluster.apply([budget])
        faults.suffer(*RECLAIM)
        await scene.settle(lambda: len(scene.nodes()) == 2, seconds=30)
        (pod,) = scene.pods("Running")
        assert "deletionTimestamp" not in pod["metadata"]

        await scene.settle(lambda: old not in names(scene.nodes()), seconds=125)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=5)
        assert len(scene.claims()) == 1

    run_controller(tmp_path, scenario, arguments=[faults.option])


def test_a_handled_message_without_acknowledgement_has_no_second_effect(tmp_path, monkeypatch):
    """The process dies in between; the next one hears the same and launches nothing twice."""
    faults, acknowledge, calls = Cloud(tmp_path), KwokCloud.acknowledge_interruptions, []

    def failing(self, ids):
        calls.append(tuple(ids))
        if len(calls) == 1:
            raise CloudProviderError("the queue does not answer")
        acknowledge(self, ids)

    monkeypatch.setattr(KwokCloud, "acknowledge_interruptions", failing)

    async def scenario(scene):
        running, (old,) = await grown(scene)
        faults.suffer(*RECLAIM)
        await scene.settle(lambda: bool(calls), seconds=30)
        await running.kill()
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(calls) == 2, seconds=60)
        await scene.settle(lambda: old not in names(scene.nodes()), seconds=90)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)

        assert len(set(calls)) == 1
        assert sorted(cloud(scene, tmp_path)["launches"].values()) == [1, 1]

    run_controller(tmp_path, scenario, arguments=[faults.option])


def test_failing_provider_is_polled_with_back_off(tmp_path, monkeypatch):
    """And what was announced meanwhile is heard then."""
    faults, poll, failures = Cloud(tmp_path), KwokCloud.poll_interruptions, []

    async def scenario(scene):
        def failing(self):
            if len(failures) < 4:
                failures.append(scene.cluster.clock.monotonic())
                raise CloudProviderError("the queue does not answer")
            return poll(self)

        _, (old,) = await grown(scene)
        monkeypatch.setattr(KwokCloud, "poll_interruptions", failing)
        faults.suffer(*RECLAIM)
        await scene.settle(lambda: old not in names(scene.nodes()), seconds=100)

        waits = [b - a for a, b in pairwise(failures)]
        assert waits == sorted(waits)
        assert waits[-1] >= 2 * waits[0]

    run_controller(tmp_path, scenario, arguments=[faults.option])


def announcing(monkeypatch, *messages):
    """Let the cloud announce what a test makes up, until it is acknowledged."""
    queue = {message.id: message for message in messages}
    acknowledged = []

    def acknowledge(_self, ids):
        acknowledged.extend(ids)
        for each in ids:
            queue.pop(each, None)

    monkeypatch.setattr(KwokCloud, "poll_interruptions", lambda _: tuple(queue.values()))
    monkeypatch.setattr(KwokCloud, "acknowledge_interruptions", acknowledge)
    return queue, acknowledged


def test_messages_that_mean_nothing_are_acknowledged_and_counted(tmp_path, monkeypatch):
    """At once when they announce nothing or cannot be read, after a minute when no claim has the instance."""
    _, acknowledged = announcing(
        monkeypatch,
        Interruption(id="odd", kind=InterruptionKind.UNKNOWN, detail="?"),
        Interruption(id="idle", kind=InterruptionKind.IRRELEVANT, detail="running"),
        Interruption(id="lost", kind=InterruptionKind.SPOT_RECLAIM, provider_id="kwok://nobody"),
    )

    async def scenario(scene):
        running = scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(20)
        assert acknowledged == ["odd", "idle"]
        for message_type in ("unknown", "no_op"):
            labels = f'message_type="{message_type}",provider="kwok"'
            assert running.metric(f"{RECEIVED}{{{labels}}}") == 1

        await scene.cluster.clock.sleep(60)
        assert acknowledged == ["odd", "idle", "lost"]

    run_controller(tmp_path, scenario)


def test_a_recommendation_is_noted_unless_it_is_to_be_acted_on(tmp_path, monkeypatch):
    """By default the node stays."""
    stays = []

    def recommended(*arguments):
        queue, _ = announcing(monkeypatch)

        async def scenario(scene):
            _, (old,) = await grown(scene, *arguments)
            kind = InterruptionKind.REBALANCE
            queue["r"] = Interruption(id="r", kind=kind, provider_id=f"kwok://{old}")
            await scene.cluster.clock.sleep(60)
            stays.append(old in names(scene.nodes()))
            assert scene.events("SpotRebalanceRecommendation")
            assert len(scene.pods("Running")) == 1

        return scenario

    for number, arguments in enumerate(((), ("--act-on-rebalance",))):
        folder = tmp_path / str(number)
        folder.mkdir()
        run_controller(folder, recommended(*arguments))
    assert stays == [True, False]


def reclaim(name, scene):
    """Return the message that takes an instance in two minutes."""
    now = scene.cluster.clock.now()
    return Interruption(
        id=name,
        kind=InterruptionKind.SPOT_RECLAIM,
        provider_id=f"kwok://{name}",
        deadline=now + timedelta(minutes=2),
        announced_at=now,
    )


def test_one_failed_message_delays_no_other(tmp_path, monkeypatch):
    """It stays with the provider and is handled when the API server takes the write."""
    queue, acknowledged = announcing(monkeypatch)
    refused = []

    async def scenario(scene):
        running, (first, second) = await grown(scene, replicas=2)
        for name in (first, second):
            queue[name] = reclaim(name, scene)
        kube_writer = type(running.process.kube_writer)
        patch = kube_writer.patch

        async def refusing(self, kind, name, *rest, **more):
            if name == first and len(refused) < 3:
                refused.append(name)
                raise ApiError("the API server does not answer", status=500)
            return await patch(self, kind, name, *rest, **more)

        monkeypatch.setattr(kube_writer, "patch", refusing)
        await scene.settle(lambda: second in acknowledged, seconds=10)
        assert first not in acknowledged
        await scene.settle(lambda: first in acknowledged, seconds=60)
        await scene.settle(lambda: not names(scene.nodes()) & {first, second}, seconds=90)

        waited = "karpenter_interruption_message_queue_duration_seconds_count"
        assert running.metric(f'{waited}{{provider="kwok"}}') == 2

    run_controller(tmp_path, scenario)


def test_a_nodeclaim_that_may_not_be_deleted_delays_no_later_message(tmp_path, monkeypatch):
    """A webhook protected one, and the next poll came a minute later: half of what a spot node has."""
    queue, acknowledged = announcing(monkeypatch)

    async def scenario(scene):
        _, (first, second) = await grown(scene, replicas=2)

        protected = matching("DELETE", f"/nodeclaims/{first}")
        fault = RequestFault(matches=protected, status=403, times=None)
        scene.cluster.frontend.faults.add(fault)
        queue[first] = reclaim(first, scene)
        await scene.cluster.clock.sleep(300)
        assert acknowledged == []
        assert scene.cluster.frontend.faults.hits <= 120
        (event,) = scene.events("WriteRefused")
        assert event["involvedObject"]["name"] == first
        assert not scene.events("PassFailing")

        queue[second] = reclaim(second, scene)
        await scene.settle(lambda: second in acknowledged, seconds=12)
        scene.cluster.frontend.faults.remove(fault)
        await scene.settle(lambda: first in acknowledged, seconds=12)

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("failure", [{"status": 500}, {"drop_request": True}])
def test_a_message_that_cannot_be_handled_delays_no_later_message(tmp_path, monkeypatch, failure):
    """The deletion of one NodeClaim fails for minutes."""
    queue, acknowledged = announcing(monkeypatch)

    async def scenario(scene):
        _, (first, second) = await grown(scene, replicas=2)
        fault = RequestFault(
            matches=matching("DELETE", f"/nodeclaims/{first}"), times=None, **failure
        )
        scene.cluster.frontend.faults.add(fault)
        queue[first] = reclaim(first, scene)
        await scene.cluster.clock.sleep(300)
        assert acknowledged == []

        queue[second] = reclaim(second, scene)
        await scene.settle(lambda: second in acknowledged, seconds=12)
        scene.cluster.frontend.faults.remove(fault)
        await scene.settle(lambda: first in acknowledged, seconds=12)

    run_controller(tmp_path, scenario)


def test_a_reclaim_of_a_node_that_is_draining_already_hastens_it(tmp_path):
    """A pod that would have been waited for gets the deadline of the cloud."""
    faults = Cloud(tmp_path)

    async def scenario(scene):
        protected = deployment("web", 1, cpu="3", terminationGracePeriodSeconds=10)
        protected["spec"]["template"]["metadata"]["annotations"] = {
            "karpenter.sh/do-not-disrupt": "true"
        }
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP, template=SPOT), protected])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (old,) = names(scene.nodes())
        scene.cluster.delete(NODE_CLAIMS, old)
        await scene.cluster.clock.sleep(300)
        assert old in names(scene.nodes())

        faults.suffer(*RECLAIM)
        await scene.settle(lambda: old not in names(scene.nodes()), seconds=140)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

    run_controller(tmp_path, scenario, arguments=[faults.option])


@pytest.mark.parametrize("restarts", [False, True])
def test_announcement_in_node_conditions_is_handled(tmp_path, monkeypatch, restarts):
    """Some clouds have no queue: an agent sets a node condition, also while no controller runs."""

    def read(_self, node):
        return [
            Interruption(id=node.uid, kind=InterruptionKind.SPOT_RECLAIM, deadline=each)
            for condition in node.conditions
            if condition.type == "PreemptionScheduled"
            and condition.status == "True"
            and (each := condition.last_transition_time)
        ]

    hook = "karpenter_read_interruptions"
    monkeypatch.setattr(KwokProvider, hook, hookimpl(read), raising=False)

    async def scenario(scene):
        running, (old,) = await grown(scene)
        going = scene.cluster.clock.now() + timedelta(seconds=30)
        (node,) = scene.nodes()
        condition = {
            "type": "PreemptionScheduled",
            "status": "True",
            "lastTransitionTime": f"{going:%Y-%m-%dT%H:%M:%SZ}",
        }
        status = {"status": {"conditions": [*node["status"]["conditions"], condition]}}
        if restarts:
            await running.stop()
        scene.cluster.server.registry.patch(NODES, status, old, part="status")
        if restarts:
            running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: old not in names(scene.nodes()), seconds=30)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)

        kind = 'message_type="spot_interrupted",provider="kwok"'
        assert running.metric(f"{RECEIVED}{{{kind}}}") == 1

    run_controller(tmp_path, scenario)


LATE_FAILURE = {"fault": "late-failure", "delay": "3s"}


def test_pod_of_a_launch_that_fails_late_runs_elsewhere_within_seconds(tmp_path):
    """The cloud accepts the launch and reports its failure three seconds later."""
    faults = Cloud(tmp_path)
    faults.suffer({**LATE_FAILURE, "count": 1})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1, cpu="3")])
        running = scene.start(WITHOUT_ELECTION)
        started = scene.cluster.clock.monotonic()
        await scene.settle(scene.claims, seconds=20)
        (failed,) = names(scene.claims())
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        assert scene.cluster.clock.monotonic() - started < 30

        await scene.settle(lambda: failed not in names(scene.claims()), seconds=20)
        assert len(cloud(scene, tmp_path)["instances"]) == 1, "the failed instance is terminated"
        (event,) = scene.events("LaunchFailed")
        assert "no capacity for" in event["message"]
        kind = 'message_type="launch_failed",provider="kwok"'
        assert running.metric(f"{RECEIVED}{{{kind}}}") == 1

    run_controller(tmp_path, scenario, arguments=[faults.option])


def test_launches_that_always_fail_late_back_off(tmp_path):
    """Without a back-off the core would launch and fail every few seconds."""
    faults = Cloud(tmp_path)
    faults.suffer(LATE_FAILURE)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1, cpu="3")])
        scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(600)
        failed = scene.events("LaunchFailed")
        assert 2 <= sum(event.get("count", 1) for event in failed) <= 10

    run_controller(tmp_path, scenario, arguments=[faults.option])
