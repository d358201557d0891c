"""Taking over Nodes of simulated instances that this provider's state file does not know.

Karpenter's own kwok provider keeps no record but the Nodes: provider IDs `kwok://<name>`.
"""

from __future__ import annotations

import copy

from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool

KEPT = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}


def conditions(claim):
    return {
        c["type"]: (c["status"], c["lastTransitionTime"]) for c in claim["status"]["conditions"]
    }


def test_nodes_of_another_controller_stay_as_they_are(tmp_path):
    async def scenario():
        async with ControllerHarness(lambda: {"kwok": KwokProvider()}, folder=tmp_path) as scene:
            first = scene.start(f"--kwok-state-file={tmp_path / 'theirs'}")
            web = deployment("web", 4)
            scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT), web])
            await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=120)
            await first.stop()
            before = {o["metadata"]["name"]: copy.deepcopy(o) for o in scene.claims()}
            nodes = {o["metadata"]["uid"] for o in scene.nodes()}
            assert before
            assert all(c["status"]["providerID"].startswith("kwok://") for c in before.values())

            scene.start(f"--kwok-state-file={tmp_path / 'ours'}")
            await scene.cluster.clock.sleep(4200)

            after = {o["metadata"]["name"]: o for o in scene.claims()}
            assert after.keys() == before.keys()
            for name, claim in after.items():
                assert claim["metadata"]["uid"] == before[name]["metadata"]["uid"]
                assert conditions(before[name]).items() <= conditions(claim).items()
                assert "Drifted" not in conditions(claim)
            assert {o["metadata"]["uid"] for o in scene.nodes()} == nodes

            gone = next(iter(before))
            scene.cluster.delete(NODE_CLAIMS, gone)
            await scene.settle(
                lambda: gone not in {o["metadata"]["name"] for o in scene.claims()}, seconds=300
            )

    run_virtual(scenario())
