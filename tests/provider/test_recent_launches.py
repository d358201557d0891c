"""What a process remembers of its own launches."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.provider.contract import Instance, LaunchedInstance
from karpenter_core.provider.kit.recent_launches import ClaimRef, Launch, RecentLaunches, Uncertain


class HandClock:
    """A clock that is moved by hand."""

    seconds = 1000.0

    def monotonic(self):
        return self.seconds

    def forward(self, **amount):
        self.seconds += timedelta(**amount).total_seconds()


WEB = ClaimRef(name="web-1", uid="u-1")


def launch(instance_id: str = "i-1", owner: ClaimRef = WEB) -> Launch:
    """A launch of one instance for one claim."""
    return Launch(
        instance_id=instance_id,
        owner=owner,
        instance=Instance(provider_id=instance_id),
        outcome=LaunchedInstance(
            provider_id=instance_id,
            instance_type="small",
            zone="a",
            capacity_type="spot",
            capacity={},
            allocatable={},
        ),
    )


def test_a_launch_is_known_by_instance_and_claim_for_some_minutes():
    """After that the cloud shows it."""
    clock = HandClock()
    recent = RecentLaunches(clock)
    recent.add(launch())

    assert recent.get("i-1") == recent.of_claim("u-1") == launch()
    assert recent.owners() == {"i-1": WEB}

    clock.forward(minutes=5)
    assert recent.get("i-1") is None
    assert recent.of_claim("u-1") is None


def test_an_instance_that_was_seen_to_go_has_ended():
    """Its claim launches nothing any more."""
    recent = RecentLaunches(HandClock())
    recent.add(launch())

    recent.forget("i-1")

    assert recent.of_claim("u-1") is None
    assert recent.ended("u-1") == "i-1"
    assert recent.ended("u-2") == ""


def test_a_call_without_an_answer_is_kept_until_there_is_one():
    """And what brought a claim nothing is counted."""
    calls: Uncertain[str] = Uncertain(HandClock())
    calls.note_unanswered(["u-1", "u-2"], "call")

    assert calls.call_for("u-1") == "call"

    calls.note_answered(["u-1", "u-2"], failed=["u-2"])
    calls.note_answered(["u-2"], failed=["u-2"])

    assert calls.call_for("u-2") is None
    assert calls.attempts(["u-1", "u-2"]) == {"u-2": 2}
