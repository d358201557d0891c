"""Failed launches are retried with back-off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.controllers.nodeclaim.instance_launcher import InstanceLauncher
from karpenter_core.errors import ThrottledError


class Clock:
    """Stands still until it is moved."""

    seconds = 1000.0

    def monotonic(self):
        return self.seconds

    def now(self):
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


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
