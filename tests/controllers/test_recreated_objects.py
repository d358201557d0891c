"""A new object under the name of a deleted one is not deleted."""

from __future__ import annotations

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.faults import RequestFault
from tests.controllers.whole_controller import (
    GROUP,
    NODE_CLASS,
    deployment,
    node_pool,
    run_controller,
)


class ObjectSwap:
    """Puts a namesake in an object's place while the request to delete it is on its way."""

    def __init__(self, scene, kind, plural, spec):
        self._registry = scene.cluster.server.registry
        self._kind, self._plural, self._spec = kind, plural, spec
        self.uid = ""
        scene.cluster.frontend.faults.add(RequestFault(matches=self._strike, times=None))

    def _strike(self, request):
        *_, plural, name = request.path.split("/")
        if request.method == "DELETE" and plural == self._plural and not self.uid:
            self._registry.patch(self._kind, {"metadata": {"finalizers": None}}, name)
            self._registry.delete(self._kind, name)
            made = self._registry.create(
                self._kind,
                {
                    "apiVersion": self._kind.api_version,
                    "kind": self._kind.kind,
                    "metadata": {"name": name},
                    "spec": self._spec,
                },
            )
            self.uid = made["metadata"]["uid"]
        return False

    def is_alive(self, objects):
        """Whether the new object exists and is not deleted."""
        return any(
            each["metadata"]["uid"] == self.uid and "deletionTimestamp" not in each["metadata"]
            for each in objects
        )


def test_a_claim_with_the_name_of_a_deleted_one_stays(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        ref = {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"}
        spec = {"nodeClassRef": ref, "requirements": [], "expireAfter": "Never"}
        swap = ObjectSwap(scene, NODE_CLAIMS, "nodeclaims", spec)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: bool(swap.uid), seconds=120)

        await scene.cluster.clock.sleep(30)

        assert swap.is_alive(scene.claims())

    run_controller(tmp_path, scenario)


def test_a_node_with_the_name_of_a_deleted_one_stays(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (claim,) = (each["metadata"]["name"] for each in scene.claims())
        swap = ObjectSwap(scene, NODES, "nodes", {})
        scene.cluster.delete(NODE_CLAIMS, claim)
        await scene.settle(lambda: bool(swap.uid), seconds=60)

        await scene.cluster.clock.sleep(30)

        assert swap.is_alive(scene.nodes())

    run_controller(tmp_path, scenario)
