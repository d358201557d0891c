"""A process remembers its own recent launches."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.provider.contract import Instance, LaunchedInstance
from karpenter_core.provider.kit.recent_launches import (
    ClaimRef,
    RecentLaunch,
    RecentLaunches,
    UnansweredCalls,
)


class HandClock:
    """A clock that is moved by hand."""

    seconds = 1000.0

    def monotonic(self):
        return self.seconds

    def forward(self, **amount):
        self.seconds += timedelta(**amount).total_seconds()


WEB = ClaimRef(name="web-1", uid="u-1")


def launch(instance_id: str = "i-1", owner: ClaimRef = WEB) -> RecentLaunch:
    """A launch of one instance for one claim."""
    return RecentLaunch(
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


def test_a_launch_can_be_looked_up_by_instance_and_claim_for_some_minutes():
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
    assert recent.ended_instance("u-1") == "i-1"
    assert recent.ended_instance("u-2") == ""


def test_a_call_without_an_answer_is_kept_until_there_is_one():
    """And what brought a claim nothing is counted."""
    calls: UnansweredCalls[str] = UnansweredCalls(HandClock())
    calls.note_unanswered(["u-1", "u-2"], "call")

    assert calls.call_for("u-1") == "call"

    calls.note_answered(["u-1", "u-2"], failed=["u-2"])
    calls.note_answered(["u-2"], failed=["u-2"])

    assert calls.call_for("u-2") is None
    assert calls.attempts(["u-1", "u-2"]) == {"u-2": 2}


def test_an_unanswered_call_is_recognised_by_identity():
    """A call that says the same, but was made anew, is another call."""
    calls: UnansweredCalls[list[str]] = UnansweredCalls(HandClock())
    call, same_words = ["launch"], ["launch"]
    calls.note_unanswered(["u-1"], call)

    assert calls.is_unanswered(["u-2", "u-1"], call)
    assert not calls.is_unanswered(["u-1"], same_words)
    assert not calls.is_unanswered(["u-2"], call)

    calls.note_answered(["u-1"], failed=())
    assert not calls.is_unanswered(["u-1"], call)


def test_a_claim_was_attempted_when_its_call_is_unanswered_or_brought_nothing():
    """A claim that no call was made for, or that got its instance, was not."""
    calls: UnansweredCalls[str] = UnansweredCalls(HandClock())
    calls.note_unanswered(["u-1", "u-2"], "call")

    assert calls.has_attempted("u-1")
    assert not calls.has_attempted("u-3")

    calls.note_answered(["u-1", "u-2"], failed=["u-2"])
    assert not calls.has_attempted("u-1")
    assert calls.has_attempted("u-2")
