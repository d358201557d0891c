"""Every write of repairs and interruptions is failed in every way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import structlog

from karpenter_core.errors import ApiError, ConflictError, TooManyRequestsError
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)
from tests.support.run_selection import others_as_cluster_runs

if TYPE_CHECKING:
    from collections.abc import Callable

KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
SPOT = {
    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
}
WRITE_COUNTS = {"interruption": 3, "node.health": 2}
"""Controllers and the writes that one node costs them: metadata, status, deletion."""


@dataclass(frozen=True)
class FailureMode:
    """A failure of a write and its number of attempts; the writer makes five."""

    stage: str
    error: Callable[[], Exception]
    attempts: int = 1


WAYS = {
    "conflict": FailureMode("request", lambda: ConflictError("somebody was faster", status=409)),
    "throttled": FailureMode("request", lambda: TooManyRequestsError("slow down", status=429)),
    "broken": FailureMode("request", lambda: ApiError("etcd is away", status=500), attempts=5),
    "timed-out": FailureMode("request", lambda: ApiError("timed out", status=0), attempts=5),
    "lost-reply": FailureMode("reply", lambda: ApiError("connection reset", status=0)),
}


class WriteFailure:
    """Fails the n-th write of one controller; counts its writes."""

    def __init__(self, controller: str, number: int = -1, way: FailureMode | None = None):
        self.seen: list[tuple[str, str, str]] = []
        self.hits = 0
        self._controller, self._number, self._way = controller, number, way
        self._struck = None

    async def __call__(self, op):
        if structlog.contextvars.get_contextvars().get("controller") != self._controller:
            return
        what = (op.verb, op.subresource, op.name)
        if op.stage == "request":
            if len(self.seen) == self._number and self._struck is None:
                self._struck = what
            self.seen.append(what)
        way = self._way
        if way is None or what != self._struck or op.stage != way.stage:
            return
        if self.hits < way.attempts:
            self.hits += 1
            raise way.error()


def lived(folder, controller: str, strike: WriteFailure) -> None:
    """One node is lost and replaced; nothing may be left over, lost or done twice."""
    faults = folder / "faults.json"
    faults.write_text("[]")

    async def scenario(scene):
        scene.cluster.apply(
            [NODE_CLASS, node_pool(disruption=KEEP, template=SPOT), deployment("web", 1)]
        )
        running = scene.start(
            "--disable-leader-election", "--feature-gates=NodeRepair=true", faults=strike
        )
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(10)
        (old,) = (node["metadata"]["name"] for node in scene.nodes())
        if controller == "interruption":
            faults.write_text(json.dumps([{"fault": "reclaim", "notice": "2m", "count": 1}]))
        else:
            scene.cluster.kubelets.fail(old, ready="False")
            await scene.cluster.clock.sleep(600)
        await scene.settle(
            lambda: old not in {node["metadata"]["name"] for node in scene.nodes()}, seconds=240
        )
        await scene.settle(
            lambda: len(scene.pods("Running")) == len(scene.pods()) == 1, seconds=120
        )
        await scene.settle(lambda: len(scene.claims()) == len(scene.nodes()) == 1, seconds=60)
        cloud_dump = cloud(scene, folder)
        assert len(cloud_dump["instances"]) == 1
        assert sorted(cloud_dump["launches"].values()) == [1, 1]
        reason = {"interruption": "spot_interrupted", "node.health": "unhealthy"}[controller]
        labels = 'capacity_type="spot",consolidation_policy="",nodepool="general",'
        series = f'{{{labels}reason="{reason}",termination_mode="graceful"}}'
        counted = running.metric(f"karpenter_nodeclaims_disrupted_total{series}")
        assert counted == 1 or (counted == 0 and strike.hits)  # an answer may be lost for good

    run_controller(folder, scenario, arguments=[f"--kwok-faults-file={faults}"])


@pytest.mark.parametrize("controller", WRITE_COUNTS)
def test_an_undisturbed_run_has_these_writes(tmp_path, controller):
    """Fewer would mean that a write is not failed any more."""
    strike = WriteFailure(controller)

    lived(tmp_path, controller, strike)

    assert len(strike.seen) == WRITE_COUNTS[controller]


@pytest.mark.parametrize("way", others_as_cluster_runs(WAYS))
@pytest.mark.parametrize(
    ("controller", "number"),
    [(controller, number) for controller, count in WRITE_COUNTS.items() for number in range(count)],
)
def test_a_write_that_fails_changes_nothing_in_the_end(tmp_path, controller, number, way):
    """Whichever it is, and however it fails."""
    strike = WriteFailure(controller, number, WAYS[way])

    lived(tmp_path, controller, strike)

    assert strike.hits > 0
