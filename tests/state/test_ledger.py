"""The ledger: what is remembered, for how long, and that the documentation says so."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from karpenter_core.errors import OfferingKey
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import (
    CallFinished,
    CallStarted,
    ClockSet,
    DeletionMarked,
    DeletionUnmarked,
    Nominated,
    Observed,
    OfferingsExhausted,
    PodsDecided,
    RegistrationHealthReset,
    RegistrationSettled,
    Removed,
    Tick,
    Wrote,
)
from karpenter_core.state.ledger import (
    EXHAUSTION_CAP,
    EXHAUSTION_TTL,
    TABLES,
    Ledger,
    LedgerView,
    MaskKey,
)
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.machines import node_claim

DOCUMENT = Path(__file__).parents[2] / "docs" / "design" / "state.md"
SPOT_A = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="spot")
MASK = MaskKey("kwok", SPOT_A)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.fold(Tick(EPOCH))
    return ledger


def at(**delta: float):
    return EPOCH + timedelta(**delta)


def exhaust(ledger: Ledger, when) -> None:
    ledger.fold(OfferingsExhausted(offerings=(SPOT_A,), provider="kwok", at=when))


def test_every_table_states_its_end_and_its_rebuilding():
    """No fact without an expiry and a way for a new leader to come by it."""
    assert [item.name for item in fields(LedgerView)] == list(TABLES)
    assert all(rule.holds and rule.expires and rule.rebuilt for rule in TABLES.values())


def test_the_documentation_shows_the_tables():
    """`docs/design/state.md` has one row per table with the same words."""
    rows = [f"| `{name}` | {r.holds} | {r.expires} | {r.rebuilt} |" for name, r in TABLES.items()]
    written = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    assert rows == written


def test_a_view_does_not_change_afterwards(ledger: Ledger):
    before = ledger.view()
    ledger.fold(Nominated(names=("web-1",), until=at(seconds=20)))
    assert dict(before.nominations) == {}
    assert dict(ledger.view().nominations) == {"web-1": at(seconds=20)}


def test_an_unchanged_ledger_gives_the_same_view(ledger: Ledger):
    view = ledger.view()
    ledger.fold(Tick(at(seconds=5)))
    ledger.fold(Tick(at(seconds=5.5)))  # too soon to look for what has ended
    assert ledger.view() is view


def test_nominations_are_extended_and_end(ledger: Ledger):
    """A later nomination wins, an earlier one does not shorten it (case 303)."""
    ledger.fold(Nominated(names=("web-1",), until=at(seconds=20)))
    ledger.fold(Nominated(names=("web-1",), until=at(seconds=10)))
    ledger.fold(Tick(at(seconds=19)))
    assert "web-1" in ledger.view().nominations
    ledger.fold(Tick(at(seconds=21)))
    assert "web-1" not in ledger.view().nominations


def test_deletion_marks_end_with_a_rollback_or_with_the_claim(ledger: Ledger):
    ledger.fold(DeletionMarked(names=("a", "b", "c"), cause="empty/1"))
    ledger.fold(DeletionUnmarked(names=("a",)))
    ledger.fold(Removed(node_claim("b")))
    assert {n: m.cause for n, m in ledger.view().deletion_marks.items()} == {"c": "empty/1"}


def test_a_launch_is_open_until_its_call_ends_and_its_result_lasts_an_hour(ledger: Ledger):
    claim = node_claim("web", stage="Launched")
    ledger.fold(CallStarted(claim.uid, EPOCH))
    ledger.fold(Tick(at(hours=3)))
    assert claim.uid in ledger.view().open_launches
    ledger.fold(CallFinished(claim_uid=claim.uid, launched=claim, at=at(hours=3)))
    assert claim.uid not in ledger.view().open_launches
    ledger.fold(Tick(at(hours=3, minutes=59)))
    assert ledger.view().launches[claim.uid].claim is claim
    ledger.fold(Tick(at(hours=4)))
    assert claim.uid not in ledger.view().launches


def test_a_failed_call_leaves_no_result(ledger: Ledger):
    ledger.fold(CallStarted("uid", EPOCH))
    ledger.fold(CallFinished(claim_uid="uid", launched=None, at=EPOCH))
    assert (len(ledger.view().open_launches), len(ledger.view().launches)) == (0, 0)


def test_an_open_call_outlives_its_claim(ledger: Ledger):
    """Its late result must still be recognised, or the instance would be nobody's."""
    claim = node_claim("web")
    ledger.fold(CallStarted(claim.uid, EPOCH))
    ledger.fold(Removed(claim))
    assert claim.uid in ledger.view().open_launches


def test_a_pod_is_first_seen_once_and_forgotten_when_bound(ledger: Ledger):
    """Case 159: the first time only; bound pods are not stored."""
    waiting = pod("web-1")
    ledger.fold(Observed(waiting))
    ledger.fold(Tick(at(seconds=30)))
    ledger.fold(Observed(waiting))
    assert ledger.view().first_seen[waiting.uid] == EPOCH
    ledger.fold(PodsDecided(placed={waiting.uid: "claim-1"}, at=at(seconds=31)))
    ledger.fold(Observed(pod("web-1", node_name="node-1")))
    assert waiting.uid not in ledger.view().first_seen
    assert waiting.uid not in ledger.view().placements


def test_decisions_keep_their_first_time_and_errors_clear_places(ledger: Ledger):
    """Case 159: an error clears the place, not the time of the first decision."""
    ledger.fold(PodsDecided(placed={"p": "claim-1"}, at=at(seconds=1)))
    ledger.fold(PodsDecided(failed=frozenset({"p"}), at=at(seconds=2)))
    view = ledger.view()
    assert "p" not in view.placements
    assert (at(seconds=1), False) == (view.decisions["p"].first_at, view.decisions["p"].placed)


def test_a_pod_leaving_a_node_keeps_the_place_it_is_given(ledger: Ledger):
    """A pod of a deleting node is placed while it still runs there."""
    running = pod("web-1", node_name="old")
    ledger.fold(Observed(running))
    ledger.fold(PodsDecided(placed={running.uid: "claim-2"}, at=EPOCH))
    ledger.fold(Observed(running))
    assert ledger.view().placements[running.uid].target == "claim-2"
    ledger.fold(Removed(running))
    assert running.uid not in ledger.view().placements


def test_a_claim_that_we_created_is_unseen_until_a_watch_shows_it(ledger: Ledger):
    fresh = node_claim("web")
    bare = fresh.status.model_copy(update={"conditions": ()})
    claim = fresh.model_copy(update={"status": bare})
    ledger.fold(Wrote(claim))
    assert ledger.view().unseen_claims[claim.uid].name == "web"
    ledger.fold(Observed(claim))
    assert claim.uid not in ledger.view().unseen_claims


def test_a_stock_out_is_masked_for_three_minutes(ledger: Ledger):
    exhaust(ledger, EPOCH)
    assert ledger.view().is_exhausted(MASK, at(minutes=2, seconds=59))
    assert not ledger.view().is_exhausted(MASK, at(minutes=3))


def test_a_stock_out_that_comes_back_is_masked_longer_up_to_a_cap(ledger: Ledger):
    now, ttl = EPOCH, EXHAUSTION_TTL
    for _ in range(7):
        exhaust(ledger, now)
        assert ledger.view().is_exhausted(MASK, now + ttl - timedelta(seconds=1))
        assert not ledger.view().is_exhausted(MASK, now + ttl)
        now, ttl = now + ttl, min(ttl * 2, EXHAUSTION_CAP)


def test_one_wave_of_launches_counts_as_one_stock_out(ledger: Ledger):
    for second in range(5):
        exhaust(ledger, at(seconds=second))
    assert ledger.view().exhausted[MASK].ttl == EXHAUSTION_TTL


def test_a_stock_out_long_past_is_forgotten(ledger: Ledger):
    exhaust(ledger, EPOCH)
    ledger.fold(Tick(at(minutes=6)))
    assert dict(ledger.view().exhausted) == {}
    exhaust(ledger, at(minutes=7))
    assert ledger.view().exhausted[MASK].ttl == EXHAUSTION_TTL


def test_registration_health_keeps_the_last_four_and_can_be_reset(ledger: Ledger):
    """Case 145: a ring of four; setting it clears first."""
    for succeeded in (True, False, False, True, True):
        ledger.fold(RegistrationSettled(pool_uid="uid-default", succeeded=succeeded))
    assert ledger.view().registration_health["uid-default"] == (False, False, True, True)
    ledger.fold(RegistrationHealthReset(pool_uid="uid-default", results=(True,)))
    assert ledger.view().registration_health["uid-default"] == (True,)
    ledger.fold(Removed(node_pool("default")))
    assert "uid-default" not in ledger.view().registration_health


def test_why_the_last_launch_of_a_pool_failed_is_kept_until_one_succeeds(ledger: Ledger):
    """Or until the results are set anew."""
    failed = RegistrationSettled(
        pool_uid="uid-default", succeeded=False, reason="NoCapacity", message="sold out"
    )
    for end in (
        RegistrationSettled(pool_uid="uid-default", succeeded=True),
        RegistrationHealthReset(pool_uid="uid-default"),
        Removed(node_pool("default")),
    ):
        ledger.fold(failed)
        assert ledger.view().registration_failures == {"uid-default": ("NoCapacity", "sold out")}
        ledger.fold(end)
        assert ledger.view().registration_failures == {}


def test_what_is_decided_about_objects_that_are_gone_is_not_remembered():
    """A pass takes its time; nobody would ever drop such entries again."""
    builder = StateBuilder({})
    gone = pod("gone")
    builder.fold(Observed(gone))
    builder.fold(Removed(gone))
    builder.fold(PodsDecided(placed={gone.uid: "node"}, at=EPOCH))
    builder.fold(PodsDecided(failed=frozenset({gone.uid}), at=EPOCH))
    builder.fold(DeletionMarked(names=("gone",), cause="test"))

    ledger = builder.snapshot().ledger
    assert not ledger.placements
    assert not ledger.decisions
    assert not ledger.deletion_marks


def test_one_failed_registration_pauses_nothing_and_two_in_a_row_do(ledger: Ledger):
    """Any node may fail to boot."""
    ledger.fold(RegistrationSettled(pool_uid="p", succeeded=False))
    assert not ledger.view().launch_pauses["p"].is_on_trial

    ledger.fold(RegistrationSettled(pool_uid="p", succeeded=False))
    pause = ledger.view().launch_pauses["p"]
    assert pause.is_on_trial
    assert pause.until == ledger.now + timedelta(minutes=1)


def test_a_pause_does_not_grow_while_it_lasts(ledger: Ledger):
    """The claims of one wave fail together."""
    for _ in range(10):
        ledger.fold(RegistrationSettled(pool_uid="p", succeeded=False))

    assert ledger.view().launch_pauses["p"].until == ledger.now + timedelta(minutes=1)
    assert ledger.view().launch_pauses["p"].failures == 10


def test_each_failed_trial_doubles_the_pause_up_to_ten_minutes(ledger: Ledger):
    """A broken image must not cost money around the clock."""
    waits = []
    ledger.fold(RegistrationSettled(pool_uid="p", succeeded=False))
    for _ in range(6):
        ledger.fold(RegistrationSettled(pool_uid="p", succeeded=False))
        until = ledger.view().launch_pauses["p"].until
        waits.append((until - ledger.now) / timedelta(minutes=1))
        ledger.fold(Tick(until))

    assert waits == [1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize(
    "event",
    [
        RegistrationSettled(pool_uid="p", succeeded=True),
        RegistrationHealthReset(pool_uid="p"),
        RegistrationHealthReset(pool_uid="p", results=(True,)),
    ],
)
def test_a_success_or_a_changed_pool_ends_the_pause(ledger: Ledger, event):
    """And the account begins anew."""
    for _ in range(3):
        ledger.fold(RegistrationSettled(pool_uid="p", succeeded=False))

    ledger.fold(event)

    assert "p" not in ledger.view().launch_pauses


def test_a_new_leader_takes_a_pause_from_the_pools_condition(ledger: Ledger):
    """An unhealthy pool is tried after a minute, not flooded."""
    ledger.fold(RegistrationHealthReset(pool_uid="p", results=(False, False)))

    assert ledger.view().launch_pauses["p"].until == ledger.now + timedelta(minutes=1)


def test_a_claim_is_recent_for_a_minute_even_if_it_is_gone_before(ledger: Ledger):
    """It was launched all the same."""
    claim = node_claim("web", created=ledger.now)
    ledger.fold(Observed(claim))
    ledger.fold(Removed(claim))
    assert [entry.pool for entry in ledger.view().recent_claims.values()] == ["default"]

    ledger.fold(Tick(ledger.now + timedelta(minutes=1)))
    assert ledger.view().recent_claims == {}


def test_a_claim_of_ours_is_recent_by_our_own_clock(ledger: Ledger):
    """The server's clock may be wrong by hours."""
    made = node_claim("web", created=ledger.now - timedelta(hours=5))
    bare = made.status.model_copy(update={"conditions": ()})

    ledger.fold(Wrote(made.model_copy(update={"status": bare})))

    assert len(ledger.view().recent_claims) == 1


def test_claims_that_a_first_list_shows_are_not_all_recent(ledger: Ledger):
    """A new leader counts those of the last minute."""
    ledger.fold(Observed(node_claim("old", created=ledger.now - timedelta(minutes=5))))

    assert ledger.view().recent_claims == {}


# -- the wall clock is set --------------------------------------------------------------------


def filled(start) -> Ledger:
    """Make a ledger with an entry in every table that has instants."""
    ledger = Ledger()
    ledger.fold(Tick(start))
    claim, waiting = node_claim("web-1"), pod("web")
    metadata = claim.metadata.model_copy(update={"creation_timestamp": None})
    bare = claim.status.model_copy(update={"conditions": ()})
    claim = claim.model_copy(update={"metadata": metadata, "status": bare})
    exhaust(ledger, start)
    ledger.fold(Nominated(names=("web-1",), until=start + timedelta(seconds=20)))
    ledger.fold(Observed(waiting))
    ledger.fold(PodsDecided(placed={waiting.uid: "web-1"}, at=start))
    ledger.fold(Wrote(claim))
    ledger.fold(CallStarted("open", start))
    ledger.fold(CallFinished(claim_uid=claim.uid, launched=claim, at=start))
    for _ in range(2):
        ledger.fold(RegistrationSettled(pool_uid="pool", succeeded=False))
    return ledger


@pytest.mark.parametrize("hours", [6, -6])
def test_every_instant_moves_with_the_wall_clock(hours):
    """As if all of it had happened by the clock as it is now."""
    moved, expected = filled(EPOCH), filled(EPOCH + timedelta(hours=hours))
    instants = set(TABLES) - {
        "deletion_marks", "expected", "registration_health", "registration_failures",
    }  # fmt: skip

    moved.fold(ClockSet(timedelta(hours=hours)))

    assert moved.now == expected.now
    for name in instants:
        table = getattr(moved.view(), name)
        assert dict(table) == dict(getattr(expected.view(), name)), name
        assert table, name


@pytest.mark.parametrize("hours", [6, -6])
def test_a_clock_that_is_set_neither_ends_marks_nor_keeps_them(hours):
    """What lasts three minutes lasts three minutes."""
    ledger, by = filled(EPOCH), timedelta(hours=hours)
    ledger.fold(ClockSet(by))
    ledger.fold(Tick(at(minutes=2) + by))
    assert ledger.view().is_exhausted(MASK, ledger.now)
    assert not ledger.view().nominations

    ledger.fold(Tick(at(minutes=3) + by))
    assert not ledger.view().is_exhausted(MASK, ledger.now)
    ledger.fold(Tick(at(minutes=6, seconds=1) + by))
    assert not ledger.view().exhausted


def test_an_instant_that_would_leave_the_calendar_stays():
    """A clock may show anything for a moment."""
    ledger = Ledger()
    ledger.fold(ClockSet(timedelta(days=-365 * 30)))
    ledger.fold(Tick(EPOCH))

    assert ledger.now == EPOCH
