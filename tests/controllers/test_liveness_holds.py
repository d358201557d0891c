"""Claims that could not launch or register while nothing was shown get some time afterwards."""

from __future__ import annotations

import asyncio
import copy
import json

from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
}
"""Each pod gets a node of its own."""
SLOW_CLASS = {**copy.deepcopy(NODE_CLASS), "spec": {"nodeRegistrationDelay": "10m"}}


def claim_names(harness):
    """Return the names of all claims."""
    return {each["metadata"]["name"] for each in harness.claims()}


def test_nodes_that_could_not_join_in_an_outage_join_after_it(tmp_path):
    """Their time to register has passed when the API server answers again."""

    async def story(harness):
        cluster = harness.cluster
        cluster.apply([SLOW_CLASS, node_pool(), deployment("web", 3, affinity=APART)])
        harness.start("--disable-leader-election")
        await harness.settle(lambda: len(harness.claims()) == 3, seconds=60)
        await asyncio.sleep(10)
        assert len(cloud(harness, tmp_path)["instances"]) == 3
        launched = claim_names(harness)
        await asyncio.sleep(480)
        cluster.frontend.stop()
        await asyncio.sleep(600)
        cluster.frontend.start()

        await harness.settle(lambda: len(harness.pods("Running")) == 3, seconds=300)
        assert claim_names(harness) == launched
        assert set(cloud(harness, tmp_path)["launches"].values()) == {1}

    run_controller(tmp_path, story)


def test_claims_are_launched_by_a_process_that_starts_after_their_time(tmp_path):
    """No process ran for ten minutes; that its first calls are throttled is no fault of their NodePool."""
    throttled = {"fault": "throttle", "operation": "launch"}
    file = tmp_path / "faults.json"
    file.write_text(json.dumps([throttled]))

    async def story(harness):
        cluster = harness.cluster
        cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3, affinity=APART)])
        first = harness.start("--disable-leader-election")
        await harness.settle(lambda: len(harness.claims()) == 3, seconds=60)
        created = claim_names(harness)
        await asyncio.sleep(30)
        await first.kill()
        file.write_text(json.dumps([{**throttled, "count": 4}]))
        await asyncio.sleep(600)

        harness.start("--disable-leader-election")
        await harness.settle(lambda: len(harness.pods("Running")) == 3, seconds=300)
        assert claim_names(harness) == created
        conditions = harness.pool("general")["status"]["conditions"]
        assert "LaunchesHeldBack" not in {each["type"] for each in conditions}

    run_controller(tmp_path, story, arguments=[f"--kwok-faults-file={file}"])
