"""Controllers under crashes, lost answers, stock-outs and stale leases."""

from __future__ import annotations

import json

import pytest

from karpenter_core.errors import ApiError, ConflictError
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.transport import ApiRequest
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

WITHOUT_ELECTION = "--disable-leader-election"


def faults_file(folder, *faults):
    """Write a faults file for the simulated cloud and return the option that names it."""
    path = folder / "faults.json"
    path.write_text(json.dumps(list(faults)))
    return f"--kwok-faults-file={path}"


class WriteTrigger:
    """Does something at the n-th write of one sort, before or after it."""

    def __init__(self, verb, kind, subresource="", *, stage="reply", number=1, act):
        self._what = (verb, kind, subresource, stage)
        self._left = number
        self._act = act
        self.struck = False

    async def __call__(self, op):
        if (op.verb, op.kind.kind, op.subresource, op.stage) != self._what or self.struck:
            return
        self._left -= 1
        if self._left == 0:
            self.struck = True
            await self._act()


def test_a_lost_launch_reply_makes_one_instance(tmp_path):
    """The claim is handed over again with the same token, and finds what was launched."""
    option = faults_file(tmp_path, {"fault": "lost-reply", "operation": "launch", "count": 1})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        account = cloud(scene, tmp_path)
        assert list(account["launches"].values()) == [1]
        assert len(account["instances"]) == len(scene.claims()) == 1

    run_controller(tmp_path, scenario, arguments=[option])


def test_a_stock_out_leads_to_another_offering(tmp_path):
    """The claim goes with an event, its offering is masked, the pods get something else."""
    option = faults_file(tmp_path, {"fault": "stock-out", "zones": ["test-zone-a"]})

    async def scenario(scene):
        zone = {"key": "topology.kubernetes.io/zone", "operator": "In"}
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(
                    "near",
                    weight=50,
                    template={"requirements": [{**zone, "values": ["test-zone-a"]}]},
                ),
                node_pool("far", template={"requirements": [{**zone, "values": ["test-zone-b"]}]}),
                deployment("web", 2),
            ]
        )
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=90)

        pools = {claim["metadata"]["labels"]["karpenter.sh/nodepool"] for claim in scene.claims()}
        assert {"far"} == pools
        assert scene.events("InsufficientCapacityError")

    run_controller(tmp_path, scenario, arguments=[option])


def test_a_slow_launch_is_not_repeated(tmp_path):
    """While a call is open the claim is in no other; its late result is taken over."""
    slow = {"fault": "slow-reply", "operation": "launch", "delay": "3m", "count": 1}
    option = faults_file(tmp_path, slow)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=300)

        account = cloud(scene, tmp_path)
        launches = [call for call in account["calls"] if call["operation"] == "launch"]
        assert len(launches) == 1
        assert len(account["instances"]) == 1

    run_controller(tmp_path, scenario, arguments=[option])


WRITES = [
    ("create", "NodeClaim", ""),
    ("patch", "NodeClaim", ""),
    ("patch", "NodeClaim", "status"),
    ("create", "Node", ""),
    ("patch", "Node", ""),
]


@pytest.mark.parametrize("stage", ["request", "reply"])
@pytest.mark.parametrize("write", WRITES, ids="-".join)
def test_killed_at_a_write_of_a_launch(tmp_path, write, stage):
    """Before and after each: the next process ends with one claim, one node, one instance."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        first = None

        async def die():
            for cable in first._cables:
                cable.is_cut = True
            first._task.cancel()
            raise ApiError("the process is dead", status=0)

        at = WriteTrigger(*write, stage=stage, act=die)
        first = scene.start(WITHOUT_ELECTION, faults=at)
        await scene.settle(lambda: at.struck, seconds=60)
        await first.kill()

        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(30)

        account = cloud(scene, tmp_path)
        assert len(scene.claims()) == len(scene.nodes()) == len(account["instances"]) == 1
        assert {1} == set(account["launches"].values())
        assert len(account["launches"]) == 1

    run_controller(tmp_path, scenario)


def test_a_claim_that_an_earlier_process_launched_does_not_end_before_its_instance(tmp_path):
    """It is too old to be launched again, and names no instance: the provider is asked for one."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        first = None

        async def die():
            for cable in first._cables:
                cable.is_cut = True
            first._task.cancel()
            raise ApiError("the process is dead", status=0)

        at = WriteTrigger("patch", "NodeClaim", "status", stage="request", act=die)
        first = scene.start(WITHOUT_ELECTION, faults=at)
        await scene.settle(lambda: at.struck, seconds=60)
        await first.kill()
        assert not scene.claims()[0].get("status", {}).get("providerID")
        assert len(cloud(scene, tmp_path)["instances"]) == 1
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.cluster.clock.sleep(400)

        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: not scene.claims(), seconds=50)
        assert cloud(scene, tmp_path)["instances"] == []

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("stage", ["request", "reply"])
@pytest.mark.parametrize(
    "write",
    [
        ("patch", "Node", "", 2),
        ("patch", "Node", "", 3),
        ("delete", "NodeClaim", "", 1),
        ("delete", "Node", "", 1),
        ("patch", "NodeClaim", "", 2),
    ],
    ids=lambda write: "-".join(map(str, write)),
)
def test_killed_at_a_write_of_a_termination(tmp_path, write, stage):
    """Before and after each: the next process leaves nothing."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        first = None

        async def die():
            for cable in first._cables:
                cable.is_cut = True
            first._task.cancel()
            raise ApiError("the process is dead", status=0)

        at = WriteTrigger(*write[:3], stage=stage, number=write[3], act=die)
        first = scene.start(WITHOUT_ELECTION, faults=at)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: at.struck, seconds=120)
        await first.kill()

        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=120)

        assert cloud(scene, tmp_path)["instances"] == []

    run_controller(tmp_path, scenario)


def test_a_leader_killed_between_creation_and_launch_leaves_one_claim(tmp_path):
    """The standby adopts the claim for the pods that still wait: no second one."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 5)])
        leader = None

        async def die():
            for cable in leader._cables:
                cable.is_cut = True
            leader._task.cancel()
            raise ApiError("the process is dead", status=0)

        at = WriteTrigger("create", "NodeClaim", act=die)
        leader = scene.start(name="leader", faults=at)
        await scene.settle(lambda: leader.process.is_leading, seconds=10)
        standby = scene.start(name="standby")
        await scene.settle(lambda: at.struck, seconds=30)
        await leader.kill()
        claims = {claim["metadata"]["name"] for claim in scene.claims()}

        await scene.settle(lambda: len(scene.pods("Running")) == 5, seconds=90)

        assert claims == {claim["metadata"]["name"] for claim in scene.claims()}
        assert standby.process.is_leading
        assert set(cloud(scene, tmp_path)["launches"].values()) == {1}

    run_controller(tmp_path, scenario)


def test_a_leader_that_cannot_renew_writes_nothing_and_ends(tmp_path):
    """Its lease runs out, another one leads; it ends with exit code 1 for a fresh start."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        old = scene.start(name="old")
        await scene.settle(lambda: old.process.is_leading, seconds=10)
        new = scene.start(name="new")
        await scene.cluster.clock.sleep(5)

        old._cables[1].is_cut = True  # the lease's own connection
        await scene.settle(lambda: new.process.is_leading, seconds=60)
        before = dict(old.process.kube_writer.counts)
        scene.cluster.apply([deployment("web", 3)])
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)

        assert before == dict(old.process.kube_writer.counts)
        assert await old.wait() == 1

    run_controller(tmp_path, scenario)


def test_a_stopping_leader_releases_its_lease_at_once(tmp_path):
    """The lease is given back: the standby leads within its retry period."""

    async def scenario(scene):
        old = scene.start(name="old")
        await scene.settle(lambda: old.process.is_leading, seconds=10)
        new = scene.start(name="new")
        await scene.cluster.clock.sleep(5)

        assert await old.stop() == 0
        started_at = scene.cluster.clock.monotonic()
        await scene.settle(lambda: new.process.is_leading, seconds=30)

        assert scene.cluster.clock.monotonic() - started_at < 6

    run_controller(tmp_path, scenario)


def test_a_conflict_on_a_status_patch_is_overcome(tmp_path):
    """The write is made again on what the other one wrote."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])

        async def conflict():
            raise ConflictError("somebody was faster", status=409)

        at = WriteTrigger("patch", "NodeClaim", "status", stage="request", act=conflict)
        scene.start(WITHOUT_ELECTION, faults=at)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        assert at.struck
        assert len(cloud(scene, tmp_path)["launches"]) == 1

    run_controller(tmp_path, scenario)


def test_a_lost_answer_to_a_creation_makes_one_claim(tmp_path):
    """The same name is asked for again, and is there."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])

        async def lose():
            raise ApiError("connection reset", status=0)

        at = WriteTrigger("create", "NodeClaim", act=lose)
        scene.start(WITHOUT_ELECTION, faults=at)
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        await scene.cluster.clock.sleep(30)

        assert at.struck
        assert len(scene.claims()) == len(cloud(scene, tmp_path)["launches"])
        assert len(scene.claims()) == len(scene.nodes())

    run_controller(tmp_path, scenario)


def test_an_api_server_that_restarts_is_survived(tmp_path):
    """In the middle of a scale-up: everything converges."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 30)])
        running = scene.start()
        await scene.settle(lambda: len(scene.claims()) > 0, seconds=30)

        await scene.cluster.restart_server(down_seconds=5)
        await scene.settle(lambda: len(scene.pods("Running")) == 30, seconds=120)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=180)

        assert running.is_alive
        account = cloud(scene, tmp_path)
        assert account["instances"] == []
        assert set(account["launches"].values()) == {1}

    run_controller(tmp_path, scenario)


def test_an_instance_without_a_claim_is_ended(tmp_path):
    """Its claim vanished with the finalizer removed; the second pass ends it."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        name = scene.claims()[0]["metadata"]["name"]
        path = f"/apis/karpenter.sh/v1/nodeclaims/{name}"
        transport = scene.cluster.transport()
        await transport.request(
            ApiRequest(
                method="PATCH",
                path=path,
                body=b'{"metadata":{"finalizers":null}}',
                content_type="application/merge-patch+json",
            )
        )
        await transport.request(ApiRequest(method="DELETE", path=path))

        await scene.settle(lambda: cloud(scene, tmp_path)["instances"] == [], seconds=400)

    run_controller(tmp_path, scenario)


def test_the_start_waits_for_its_kinds_with_a_clear_message(tmp_path):
    """Started before the CRDs exist, it says what is missing and goes on once they are there."""

    async def scenario(scene):
        crds = "customresourcedefinitions"
        stored = [scene.cluster.find(kind, name) for kind, name in _crds(scene)]
        for kind, name in _crds(scene):
            scene.cluster.delete(kind, name)
        running = scene.start()
        await scene.cluster.clock.sleep(5)
        failure = running.process.servers.failures()["crd"]
        assert "nodepools.karpenter.sh" in failure
        assert "karpenter crds" in failure

        for manifest in stored:
            metadata = {"name": manifest["metadata"]["name"]}
            scene.cluster.apply([{**manifest, "metadata": metadata}])
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        assert running.process.servers.failures() == {}
        del crds

    run_controller(tmp_path, scenario)


def _crds(scene):
    from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

    names = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh")
    return [(CUSTOM_RESOURCE_DEFINITIONS, name) for name in names]
