"""A pod whose Deployment was restarted for it stays, whatever would have refused the restart before."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest

from karpenter_core.api.labels import SURGE_MOVE
from karpenter_core.api.rollouts import RolloutView
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.node.surge_moves import SurgeMoves
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.kube.wire.rollouts import read_rollout
from karpenter_core.lifecycle.node.surge_move import MOVE_TIMEOUT
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.testing.builders import pod
from tests.controllers.clocks import StoryClock


def web(*, ready=True):
    """The only pod of the Deployment `web`."""
    built = pod("web-5d4f-abcde", labels={"app": "web", "pod-template-hash": "5d4f"})
    shape = msgspec.structs.replace(built.shape, annotations={SURGE_MOVE: "true"})
    return msgspec.structs.replace(built, shape=shape, ready=ready, owner_name="web-5d4f")


def rollout() -> RolloutView:
    return read_rollout(
        b'{"metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "7",'
        b' "generation": 3}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}},'
        b' "status": {"observedGeneration": 3, "replicas": 1, "updatedReplicas": 1,'
        b' "availableReplicas": 1}}'
    )


class Moves:
    """The moves with a writer that notes what is written and told."""

    def __init__(self):
        self.clock = StoryClock()
        self.restarts, self.told = [], []
        writer = SimpleNamespace(
            kube_writer=self,
            cluster_state=SimpleNamespace(fold=lambda _event: None),
            publish=lambda notice: self.told.append(notice.reason),
            record_metrics=lambda _updates: None,
        )
        runtime = ControllerRuntime(clock=self.clock, new_id=SequentialIds("id"), metrics=Metrics())
        self.moves = SurgeMoves(writer=writer, runtime=runtime, read_rollout=self.read)

    async def read(self, _namespace, _name):
        return rollout()

    async def patch_unread(self, _kind, name, _body, **_options):
        self.restarts.append(name)

    def holds(self, item, *, deadline_in=None):
        deadline = None if deadline_in is None else self.clock.now() + deadline_in
        return asyncio.run(self.moves.holds(item, deadline))


@pytest.mark.parametrize(
    ("item", "deadline_in"),
    [(web(ready=False), None), (web(), MOVE_TIMEOUT / 2)],
    ids=["not ready", "deadline"],
)
def test_a_started_restart_continues_despite_a_later_obstacle(item, deadline_in):
    """The other pod is on its way: the wait ends with it, or with the time of the move."""
    moves = Moves()
    assert moves.holds(web())
    assert moves.restarts == ["web"]
    assert moves.holds(item, deadline_in=deadline_in)
    assert moves.restarts == ["web"]
    assert "RolloutRestartRefused" not in moves.told


@pytest.mark.parametrize(
    ("item", "deadline_in"),
    [(web(ready=False), None), (web(), MOVE_TIMEOUT / 2)],
    ids=["not ready", "deadline"],
)
def test_a_pod_is_evicted_if_its_restart_is_refused(item, deadline_in):
    moves = Moves()
    assert not moves.holds(item, deadline_in=deadline_in)
    assert moves.restarts == []
    assert moves.told == ["RolloutRestartRefused"]
    assert not moves.holds(web(), deadline_in=timedelta(days=1)), "the move is over"
