"""Failed launches are retried with back-off."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import LAUNCHED, NodeClaim
from karpenter_core.controllers.nodeclaim.instance_launcher import InstanceLauncher
from karpenter_core.errors import FencedError, LaunchFailedError, ThrottledError
from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.lifecycle.changes import LifecycleStep
from karpenter_core.lifecycle.claim_status import condition_of
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.sim.store import DELETED
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)


class Clock:
    """Stands still until it is moved."""

    seconds = 1000.0

    def monotonic(self):
        return self.seconds

    def now(self):
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


UNNAMED = LaunchedInstance(
    provider_id="",
    instance_type="small",
    zone="zone-a",
    capacity_type="on-demand",
    capacity={},
    allocatable={},
)

UNREADABLE = replace(UNNAMED, provider_id="cloud://1", labels=None)


def launcher_over(snapshot, clock, **cluster_state):
    """A launcher, and the callback that it gives to the providers for late answers."""
    callbacks = []
    launcher = InstanceLauncher(
        cluster_state=SimpleNamespace(snapshot=lambda: snapshot, **cluster_state),
        providers=SimpleNamespace(subscribe_late_launches=callbacks.append),
        runtime=SimpleNamespace(clock=clock, jitter=lambda: 0.0),
        well_known=frozenset(),
    )
    return launcher, callbacks[0]


def claim_of(name, **labels):
    return NodeClaim.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "spec": {
                "nodeClassRef": {"group": "cloud.example.com", "kind": "Class", "name": "default"},
                "requirements": [],
            },
        }
    )


async def test_nothing_is_launched_until_the_types_of_its_pool_are_listed():
    """No provider is asked, and the claim is neither deleted nor repeated after a while."""
    claim = claim_of("web", **{NODE_POOL: "general"})
    node_class = SimpleNamespace(is_deleting=False)
    snapshot = SimpleNamespace(
        node_classes={("cloud.example.com", "Class", "default"): node_class}, catalogues={}
    )
    launcher, _ = launcher_over(snapshot, Clock())
    assert await launcher.launch(claim) == LifecycleStep(claim=claim)


@pytest.mark.parametrize(
    "outcome",
    [UNNAMED, UNREADABLE, LaunchFailedError("sold out")],
    ids=["no id", "unreadable", "failed"],
)
def test_a_late_answer_without_an_instance_closes_the_call(outcome):
    """An open call would keep the claim from being launched again, or deleted."""
    claim, folded = claim_of("web"), []
    _, answer = launcher_over(SimpleNamespace(node_claims={}), Clock(), fold=folded.append)
    answer(SimpleNamespace(node_claim=claim, instance_types=()), outcome)
    (finished,) = folded
    assert (finished.claim_uid, finished.launched) == (claim.uid, None)


def launcher_that_calls(launch, monkeypatch):
    """A launcher whose request is ready and whose provider launches so, and what it records."""
    folded = []

    async def request(_, claim, *_rest):
        return SimpleNamespace(node_claim=claim, instance_types=())

    snapshot = SimpleNamespace(node_classes={}, node_claims={})
    launcher, _ = launcher_over(snapshot, Clock(), fold=folded.append)
    monkeypatch.setattr(InstanceLauncher, "_request", request)
    launcher._providers.launch = launch
    return launcher, folded


@pytest.mark.parametrize("outcome", [UNNAMED, UNREADABLE], ids=["no id", "unreadable"])
async def test_an_instance_that_cannot_be_read_counts_as_a_failed_launch(outcome, monkeypatch):
    """The call is closed, and the reason stands in the condition."""

    async def launch(_):
        return outcome

    launcher, folded = launcher_that_calls(launch, monkeypatch)
    step = await launcher.launch(claim_of("web"))
    assert "the launched instance" in condition_of(step.claim, LAUNCHED).message
    assert folded[-1].launched is None


@pytest.mark.parametrize("error", [FencedError("not the leader"), asyncio.CancelledError()])
async def test_a_call_that_was_never_sent_is_closed(error, monkeypatch):
    """An open call would keep the claim from being launched again, or deleted."""
    claim = claim_of("web")

    async def launch(_):
        raise error

    launcher, folded = launcher_that_calls(launch, monkeypatch)
    with pytest.raises(type(error)):
        await launcher.launch(claim)
    started, finished = folded
    assert started.claim_uid == finished.claim_uid == claim.uid
    assert finished.launched is None


@pytest.mark.parametrize(("early_seconds", "is_tried"), [(1.0, False), (4e-7, True), (0.0, True)])
async def test_a_timer_that_rings_a_rounding_error_too_early_is_punctual(early_seconds, is_tried):
    """Otherwise it is set again for no time at all, for ever."""
    clock = Clock()
    snapshot = SimpleNamespace(node_classes={}, node_claims={})
    launcher = InstanceLauncher(
        cluster_state=SimpleNamespace(snapshot=lambda: snapshot),
        providers=SimpleNamespace(subscribe_late_launches=lambda _: None),
        runtime=SimpleNamespace(clock=clock, jitter=lambda: 0.0),
        well_known=frozenset(),
    )
    claim = NodeClaim.model_validate(
        {
            "metadata": {"name": "web", "uid": "1"},
            "spec": {
                "nodeClassRef": {"group": "cloud.example.com", "kind": "Class", "name": "default"},
                "requirements": [],
            },
        }
    )
    launcher._record_failure(
        claim, ThrottledError("slow down", retry_after=timedelta(seconds=5)), ()
    )

    clock.seconds += 5.0 - early_seconds
    step = await launcher.launch(claim)

    # Its NodeClass is not there, so that a try ends at once, with the claim.
    assert bool(step.delete) is is_tried
    assert step.requeue_after != timedelta()


def test_offerings_sold_out_during_a_successful_launch_are_masked_at_once(tmp_path):
    """The launch tries the cheapest zone, which is sold out, and then another one."""
    faults = tmp_path / "faults.json"
    faults.write_text(json.dumps([{"fault": "stock-out", "zones": ["test-zone-a"]}]))

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1, cpu="3")])
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        (node,) = scene.nodes()
        masked = running.process.cluster_state.snapshot().ledger.unavailable_offerings
        assert [(key.offering.zone, key.offering.capacity_type) for key in masked] == [
            ("test-zone-a", "on-demand")
        ]
        labels = node["metadata"]["labels"]
        assert labels["topology.kubernetes.io/zone"] != "test-zone-a"
        assert (
            labels["node.kubernetes.io/instance-type"] == next(iter(masked)).offering.instance_type
        )

    run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])


def test_a_lifetime_shorter_than_the_boot_of_a_node_launches_few_instances(tmp_path):
    """Without pauses there would be one each half a minute, of which none takes a pod."""

    async def scenario(scene):
        pool = node_pool(template={"expireAfter": "30s"})
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 1)])
        scene.start("--kwok-registration-delay=90s")
        await scene.cluster.clock.sleep(3600)
        healthy = registration_health(scene)

        assert 5 <= len(cloud(scene, tmp_path)["launches"]) <= 12
        assert healthy["status"] == "False"
        assert healthy["reason"] == "ExpiredBeforeRegistration"
        assert "expireAfter" in healthy["message"]

    run_controller(tmp_path, scenario)


def test_nodes_with_less_than_their_type_promises_are_launched_with_pauses(tmp_path):
    """Their pods stay pending; without pauses there would be dozens of nodes in a minute."""

    async def scenario(scene):
        shrink_nodes(scene)
        pool = node_pool(
            template={
                "requirements": [
                    {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]}
                ]
            }
        )
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 1, cpu="3500m")])
        scene.start()
        await scene.cluster.clock.sleep(3600)
        healthy = registration_health(scene)

        assert 5 <= len(cloud(scene, tmp_path)["launches"]) <= 12
        assert (healthy["status"], healthy["reason"]) == ("False", "NodeTooSmall")
        assert "only 3 of cpu for pods that ask for 3500m" in healthy["message"]
        scene.cluster.apply([deployment("web", 1, cpu="2900m")])
        await scene.settle(lambda: scene.pods("Running"), seconds=900)

    run_controller(tmp_path, scenario)


def shrink_nodes(scene):
    """Have nodes of four CPUs register with three."""
    registry = scene.cluster.server.registry

    def shrink(change):
        node = change.stored.obj
        allocatable = node["status"].get("allocatable", {})
        if change.previous is None and change.type != DELETED and allocatable.get("cpu") == "3900m":
            less = {"status": {"allocatable": {**allocatable, "cpu": "3"}}}
            name = node["metadata"]["name"]
            asyncio.get_running_loop().call_soon(
                lambda: registry.patch(NODES, less, name, part="status")
            )

    registry.store.listen(NODES, shrink)


async def types_launched_beside_batches(scene, folder, count, *, pause):
    """Let batches of two pods run one after another, at once each; return the sizes of all instances."""
    waits = []
    for _ in range(count):
        scene.cluster.scale(DEPLOYMENTS, "batch", 2)
        started = scene.cluster.clock.monotonic()
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=600)
        waits.append(scene.cluster.clock.monotonic() - started)
        scene.cluster.scale(DEPLOYMENTS, "batch", 0)
        await scene.cluster.clock.sleep(pause)
    account = cloud(scene, folder)
    types = Counter(
        each["instanceType"].partition(".")[2]
        for each in (*account["instances"], *account["terminated"])
    )
    assert types["2xlarge"] >= count
    assert median(waits) < 30, "the others do not wait for the end of the pauses"
    return types


@pytest.mark.cluster_runs
def test_workloads_whose_nodes_do_not_fit_are_launched_with_pauses_beside_others(tmp_path):
    """The others' nodes register all the time, and must neither end the pauses nor wait for them."""

    async def scenario(scene):
        shrink_nodes(scene)
        cpu = "karpenter.kwok.sh/instance-cpu"
        misfits = deployment("web", 3, cpu="3500m", nodeSelector={cpu: "4"})
        others = deployment("batch", 0, cpu="7", nodeSelector={cpu: "8"})
        scene.cluster.apply([NODE_CLASS, node_pool(), misfits, others])
        scene.start()
        types = await types_launched_beside_batches(scene, tmp_path, 60, pause=60)
        assert 8 <= types["xlarge"] <= 16, types
        assert any("did not fit" in each["message"] for each in scene.events("FailedScheduling"))
        scene.cluster.apply([deployment("web", 3, cpu="2900m", nodeSelector={cpu: "4"})])
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=900)

    run_controller(tmp_path, scenario)


AGENT = {"key": "example.com/agent", "effect": "NoSchedule"}


class TaintingAgent:
    """Taints each new Node, as a kubelet does that is told to; takes the taint off after some time."""

    def __init__(self, cluster, *, seconds):
        self._cluster, self._seconds = cluster, seconds
        self._tasks = set()
        cluster.server.registry.store.listen(NODES, self._follow)

    def _follow(self, change):
        if change.previous is None and change.type != DELETED:
            name = change.stored.obj["metadata"]["name"]
            self._tasks.add(asyncio.get_running_loop().create_task(self._taint(name)))

    async def _taint(self, name):
        self._put(name, [AGENT])
        await self._cluster.clock.sleep(self._seconds)
        self._put(name, [])

    def _put(self, name, own):
        if (node := self._cluster.find(NODES, name)) is not None:
            others = [t for t in node["spec"].get("taints") or () if t["key"] != AGENT["key"]]
            self._cluster.patch(NODES, name, {"spec": {"taints": [*others, *own] or None}})


@pytest.mark.parametrize(
    ("startup_taints", "seconds", "least", "most"),
    [([], 10**6, 5, 12), ([], 30, 2, 6), ([AGENT], 30, 1, 1)],
)
def test_nodes_with_a_taint_that_their_pool_does_not_declare_are_launched_with_pauses(
    tmp_path, startup_taints, seconds, least, most
):
    """Without pauses there would be three in a minute, whether an agent removes the taint or not."""

    async def scenario(scene):
        agent = TaintingAgent(scene.cluster, seconds=seconds)
        pool = node_pool(template={"startupTaints": startup_taints})
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 1)])
        scene.start("--kwok-registration-delay=20s")
        await scene.cluster.clock.sleep(120)
        healthy = registration_health(scene)
        await scene.cluster.clock.sleep(3600)

        assert least <= len(cloud(scene, tmp_path)["launches"]) <= most
        assert bool(scene.pods("Running")) is (seconds == 30)
        if seconds != 30:
            assert (healthy["status"], healthy["reason"]) == ("False", "UnexpectedTaint")
            assert "startupTaints" in healthy["message"]
        del agent

    run_controller(tmp_path, scenario)


def registration_health(scene):
    """Return the condition NodeRegistrationHealthy of the pool."""
    conditions = scene.pool("general")["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "NodeRegistrationHealthy")


@pytest.mark.cluster_runs
def test_workloads_whose_nodes_never_register_are_launched_with_pauses_beside_others(tmp_path):
    """A broken image for one architecture, say: what other workloads launch ends no pause of these."""
    cpu = "karpenter.kwok.sh/instance-cpu"
    faults = tmp_path / "faults.json"
    broken = [{"fault": "slow-node", "instanceTypes": ["*.xlarge"], "delay": "100h"}]
    faults.write_text(json.dumps(broken))

    async def scenario(scene):
        web = deployment("web", 9, cpu="3500m", nodeSelector={cpu: "4"})
        others = deployment("batch", 0, cpu="7", nodeSelector={cpu: "8"})
        scene.cluster.apply([NODE_CLASS, node_pool(), web, others])
        scene.start()
        types = await types_launched_beside_batches(scene, tmp_path, 36, pause=600)
        assert 12 <= types["xlarge"] <= 30, types
        assert any("did not" in each["message"] for each in scene.events("FailedScheduling"))

        faults.write_text("[]")
        await scene.settle(lambda: len(scene.pods("Running")) == 9, seconds=1900)

    run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])


def test_pods_whose_nodes_never_register_get_one_of_another_pool(tmp_path):
    """The preferred NodePool works for others all the time, so that it is not paused itself."""
    cpu = "karpenter.kwok.sh/instance-cpu"
    faults = tmp_path / "faults.json"
    broken = {
        "fault": "slow-node",
        "instanceTypes": ["*.xlarge"],
        "nodeClaims": ["preferred-*"],
        "delay": "100h",
    }
    faults.write_text(json.dumps([broken]))

    async def scenario(scene):
        pools = [node_pool("preferred", weight=50), node_pool("spare")]
        web = deployment("web", 4, cpu="3500m", nodeSelector={cpu: "4"})
        picky = deployment(
            "picky", 1, cpu="3", nodeSelector={cpu: "4", "karpenter.sh/nodepool": "preferred"}
        )
        others = deployment("batch", 0, cpu="7", nodeSelector={cpu: "8"})
        scene.cluster.apply([NODE_CLASS, *pools, web, picky, others])
        scene.start()
        for _ in range(6):
            scene.cluster.scale(DEPLOYMENTS, "batch", 1)
            await scene.cluster.clock.sleep(300)
            scene.cluster.scale(DEPLOYMENTS, "batch", 0)
            await scene.cluster.clock.sleep(300)

        running = {pod["metadata"]["labels"]["app"] for pod in scene.pods("Running")}
        assert running == {"web"}
        assert len(scene.pods("Running")) == 4
        launches = Counter(
            each["nodeClaim"].partition("-")[0]
            for state in ("instances", "terminated")
            for each in cloud(scene, tmp_path)[state]
            if each["instanceType"].endswith(".xlarge")
        )
        assert launches["spare"] == 4
        assert 5 <= launches["preferred"] <= 10, launches
        messages = [
            each["message"]
            for each in scene.events("FailedScheduling")
            if each["involvedObject"]["name"].startswith("picky")
        ]
        assert any('nodes of nodepool "preferred" in a row' in each for each in messages)

    run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])
