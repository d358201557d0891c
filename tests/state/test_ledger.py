"""The ledger: entries, their expiry, and their documentation."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from karpenter_core.errors import OfferingKey
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import (
    ClockSet,
    DeletionMarked,
    DeletionUnmarked,
    LaunchCallFinished,
    LaunchCallStarted,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    ObjectWritten,
    OfferingsUnavailable,
    PodReplacementEnded,
    PodReplacementStarted,
    PodsDecided,
    RegistrationHealthReset,
    RegistrationSettled,
    TimePassed,
)
from karpenter_core.state.ledger import UNAVAILABLE_TTL, UNAVAILABLE_TTL_CAP, Ledger
from karpenter_core.state.ledger_rules import TABLES
from karpenter_core.state.ledger_view import LedgerView, UnavailableOfferingKey
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import node_claim

DOCUMENT = Path(__file__).parents[2] / "docs" / "design" / "state.md"
SPOT_A = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="spot")
MASK = UnavailableOfferingKey("kwok", SPOT_A, node_class="")


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.apply_event(TimePassed(EPOCH))
    return ledger


def at(**delta: float):
    return EPOCH + timedelta(**delta)


def ending(name: str, timestamp, *, grace_seconds: int):
    """Make a deleted pod."""
    return msgspec.structs.replace(
        pod(name, node_name="node-1"),
        deletion_timestamp=timestamp,
        deletion_grace_period_seconds=grace_seconds,
    )


def exhaust(ledger: Ledger, when) -> None:
    ledger.apply_event(OfferingsUnavailable(offerings=(SPOT_A,), provider="kwok", at=when))


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
    ledger.apply_event(NodesNominated(names=("web-1",), until=at(seconds=20)))
    assert dict(before.nominations) == {}
    assert dict(ledger.view().nominations) == {"web-1": at(seconds=20)}


def test_a_view_without_entries_is_empty():
    """A state without a ledger begins with it."""
    empty = LedgerView()
    assert {each.name: len(getattr(empty, each.name)) for each in fields(LedgerView)} == {
        each.name: 0 for each in fields(LedgerView)
    }


def test_an_unchanged_ledger_gives_the_same_view(ledger: Ledger):
    view = ledger.view()
    ledger.apply_event(TimePassed(at(seconds=5)))
    ledger.apply_event(TimePassed(at(seconds=5.5)))  # too soon to look for what has ended
    assert ledger.view() is view


@pytest.mark.parametrize(
    "changes",
    [{}, {"unschedulable": False}, {"node_name": "node"}, {"phase": "Succeeded"}],
    ids=["waiting", "new", "bound", "ended"],
)
def test_a_pod_that_is_seen_again_as_it_was_leaves_the_view_as_it_is(ledger: Ledger, changes):
    """A new view is a new state, which every planner would look at again."""
    ledger.apply_event(ObjectObserved(msgspec.structs.replace(pod("web"), **changes)))
    view = ledger.view()
    again = msgspec.structs.replace(pod("web"), **changes, resource_version=9)
    ledger.apply_event(ObjectObserved(again))
    assert ledger.view() is view


def test_nominations_are_extended_and_end(ledger: Ledger):
    """A later nomination wins, an earlier one does not shorten it (case 303)."""
    ledger.apply_event(NodesNominated(names=("web-1",), until=at(seconds=20)))
    ledger.apply_event(NodesNominated(names=("web-1",), until=at(seconds=10)))
    ledger.apply_event(TimePassed(at(seconds=19)))
    assert "web-1" in ledger.view().nominations
    ledger.apply_event(TimePassed(at(seconds=21)))
    assert "web-1" not in ledger.view().nominations


def test_deletion_marks_end_with_a_rollback_or_with_the_claim(ledger: Ledger):
    ledger.apply_event(DeletionMarked(names=("a", "b", "c"), cause="empty/1"))
    ledger.apply_event(DeletionUnmarked(names=("a",)))
    ledger.apply_event(ObjectRemoved(node_claim("b")))
    assert {n: m.cause for n, m in ledger.view().deletion_marks.items()} == {"c": "empty/1"}


def test_a_launch_is_open_until_its_call_ends_and_its_result_lasts_an_hour(ledger: Ledger):
    claim = node_claim("web", stage="Launched")
    ledger.apply_event(LaunchCallStarted(claim.uid, EPOCH))
    ledger.apply_event(TimePassed(at(hours=3)))
    assert claim.uid in ledger.view().open_launches
    ledger.apply_event(LaunchCallFinished(claim_uid=claim.uid, launched=claim, at=at(hours=3)))
    assert claim.uid not in ledger.view().open_launches
    ledger.apply_event(TimePassed(at(hours=3, minutes=59)))
    assert ledger.view().launches[claim.uid].claim is claim
    ledger.apply_event(TimePassed(at(hours=4)))
    assert claim.uid not in ledger.view().launches


def test_a_failed_call_leaves_no_result(ledger: Ledger):
    ledger.apply_event(LaunchCallStarted("uid", EPOCH))
    ledger.apply_event(LaunchCallFinished(claim_uid="uid", launched=None, at=EPOCH))
    assert (len(ledger.view().open_launches), len(ledger.view().launches)) == (0, 0)


def test_an_open_call_is_kept_after_its_claim_is_removed(ledger: Ledger):
    """Its late result must still be recognised, or the instance would have no claim."""
    claim = node_claim("web")
    ledger.apply_event(LaunchCallStarted(claim.uid, EPOCH))
    ledger.apply_event(ObjectRemoved(claim))
    assert claim.uid in ledger.view().open_launches


def test_a_pod_is_first_seen_once_and_forgotten_when_bound(ledger: Ledger):
    """Case 159: the first time only; bound pods are not stored."""
    waiting = pod("web-1")
    ledger.apply_event(ObjectObserved(waiting))
    ledger.apply_event(TimePassed(at(seconds=30)))
    ledger.apply_event(ObjectObserved(waiting))
    assert ledger.view().first_seen[waiting.uid] == EPOCH
    ledger.apply_event(PodsDecided(placed={waiting.uid: "claim-1"}, at=at(seconds=31)))
    ledger.apply_event(ObjectObserved(pod("web-1", node_name="node-1")))
    assert waiting.uid not in ledger.view().first_seen
    assert waiting.uid not in ledger.view().placements


@pytest.mark.parametrize("hours", [5, -5])
def test_the_grace_period_of_a_pod_counts_from_when_its_deletion_was_seen(ledger: Ledger, hours):
    """The API server dates its end by another clock; who deletes again may shorten it."""
    first, second = at(hours=hours), at(hours=hours, seconds=-290)
    leaving = ending("web-1", first, grace_seconds=300)
    ledger.apply_event(ObjectObserved(leaving))
    ledger.apply_event(TimePassed(at(seconds=20)))
    ledger.apply_event(ObjectObserved(leaving))
    assert ledger.view().pod_deletions[leaving.uid].ends_at == at(seconds=300)

    ledger.apply_event(ObjectObserved(ending("web-1", second, grace_seconds=10)))
    assert ledger.view().pod_deletions[leaving.uid].ends_at == at(seconds=30)
    ledger.apply_event(ObjectRemoved(leaving))
    assert ledger.view().pod_deletions == {}


@pytest.mark.parametrize("grace_seconds", [10**12, 2**63 - 1])
def test_a_grace_period_beyond_the_calendar_ends_in_a_century(ledger: Ledger, grace_seconds):
    """Kubernetes allows any number of seconds."""
    leaving = ending("web-1", EPOCH, grace_seconds=grace_seconds)
    ledger.apply_event(ObjectObserved(leaving))
    assert ledger.view().pod_deletions[leaving.uid].ends_at == at(days=36_500)


def test_decisions_keep_their_first_time_and_errors_clear_places(ledger: Ledger):
    """Case 159: an error clears the place, not the time of the first decision."""
    ledger.apply_event(PodsDecided(placed={"p": "claim-1"}, at=at(seconds=1)))
    ledger.apply_event(PodsDecided(failed=frozenset({"p"}), at=at(seconds=2)))
    view = ledger.view()
    assert "p" not in view.placements
    assert (at(seconds=1), False) == (view.decisions["p"].first_at, view.decisions["p"].placed)


def test_a_pod_leaving_a_node_keeps_the_place_it_is_given(ledger: Ledger):
    """A pod of a deleting node is placed while it still runs there."""
    running = pod("web-1", node_name="old")
    ledger.apply_event(ObjectObserved(running))
    ledger.apply_event(PodsDecided(placed={running.uid: "claim-2"}, at=EPOCH))
    ledger.apply_event(ObjectObserved(running))
    assert ledger.view().placements[running.uid].target == "claim-2"
    ledger.apply_event(ObjectRemoved(running))
    assert running.uid not in ledger.view().placements


def test_a_claim_that_we_created_is_unseen_until_a_watch_shows_it(ledger: Ledger):
    fresh = node_claim("web")
    bare = fresh.status.model_copy(update={"conditions": ()})
    claim = fresh.model_copy(update={"status": bare})
    ledger.apply_event(ObjectWritten(claim))
    assert ledger.view().unseen_claims[claim.uid].name == "web"
    ledger.apply_event(ObjectObserved(claim))
    assert claim.uid not in ledger.view().unseen_claims


@pytest.mark.parametrize("generation", [1, 2])
def test_a_claim_whose_later_versions_we_write_is_not_unseen(ledger: Ledger, generation):
    """Only the first write of a claim makes it: conditions and generations come later."""
    claim = node_claim("web", stage="Launched")
    if generation > 1:
        bare = claim.status.model_copy(update={"conditions": ()})
        metadata = claim.metadata.model_copy(update={"generation": generation})
        claim = claim.model_copy(update={"status": bare, "metadata": metadata})
    ledger.apply_event(ObjectWritten(claim))
    assert claim.uid not in ledger.view().unseen_claims


def test_a_claim_that_is_written_again_before_it_is_seen_keeps_its_time(ledger: Ledger):
    claim = node_claim("web", created=at(minutes=1))
    bare = claim.status.model_copy(update={"conditions": ()})
    claim = claim.model_copy(update={"status": bare})
    ledger.apply_event(ObjectWritten(claim))
    later = claim.metadata.model_copy(update={"creation_timestamp": at(minutes=2)})
    ledger.apply_event(ObjectWritten(claim.model_copy(update={"metadata": later})))
    assert ledger.view().unseen_claims[claim.uid].created == at(minutes=1)


def test_a_stock_out_is_masked_for_three_minutes(ledger: Ledger):
    exhaust(ledger, EPOCH)
    assert ledger.view().is_unavailable(MASK, at(minutes=2, seconds=59))
    assert not ledger.view().is_unavailable(MASK, at(minutes=3))


def test_a_repeated_stock_out_is_masked_longer_up_to_a_cap(ledger: Ledger):
    now, ttl = EPOCH, UNAVAILABLE_TTL
    for _ in range(7):
        exhaust(ledger, now)
        assert ledger.view().is_unavailable(MASK, now + ttl - timedelta(seconds=1))
        assert not ledger.view().is_unavailable(MASK, now + ttl)
        now, ttl = now + ttl, min(ttl * 2, UNAVAILABLE_TTL_CAP)


def test_one_wave_of_launches_counts_as_one_stock_out(ledger: Ledger):
    for second in range(5):
        exhaust(ledger, at(seconds=second))
    assert ledger.view().unavailable_offerings[MASK].ttl == UNAVAILABLE_TTL


def test_a_stock_out_long_past_is_forgotten(ledger: Ledger):
    exhaust(ledger, EPOCH)
    ledger.apply_event(TimePassed(at(minutes=6)))
    assert dict(ledger.view().unavailable_offerings) == {}
    exhaust(ledger, at(minutes=7))
    assert ledger.view().unavailable_offerings[MASK].ttl == UNAVAILABLE_TTL


def test_registration_health_keeps_the_last_four_and_can_be_reset(ledger: Ledger):
    """Case 145: a ring of four; setting it clears first."""
    for succeeded in (True, False, False, True, True):
        ledger.apply_event(RegistrationSettled(pool_uid="uid-default", succeeded=succeeded))
    assert ledger.view().registration_health["uid-default"] == (False, False, True, True)
    ledger.apply_event(RegistrationHealthReset(pool_uid="uid-default", results=(True,)))
    assert ledger.view().registration_health["uid-default"] == (True,)
    ledger.apply_event(ObjectRemoved(node_pool("default")))
    assert "uid-default" not in ledger.view().registration_health


def test_the_last_launch_failure_of_a_pool_is_kept_until_a_launch_succeeds(ledger: Ledger):
    """Or until the results are set anew."""
    failed = RegistrationSettled(
        pool_uid="uid-default", succeeded=False, reason="NoCapacity", message="sold out"
    )
    for end in (
        RegistrationSettled(pool_uid="uid-default", succeeded=True),
        RegistrationHealthReset(pool_uid="uid-default"),
        ObjectRemoved(node_pool("default")),
    ):
        ledger.apply_event(failed)
        assert ledger.view().registration_failures == {"uid-default": ("NoCapacity", "sold out")}
        ledger.apply_event(end)
        assert ledger.view().registration_failures == {}


def test_decisions_about_deleted_objects_are_forgotten():
    """A pass takes its time; nothing else would drop such entries."""
    builder = StateBuilder({})
    gone = pod("gone")
    builder.apply_event(ObjectObserved(gone))
    builder.apply_event(ObjectRemoved(gone))
    builder.apply_event(PodsDecided(placed={gone.uid: "node"}, at=EPOCH))
    builder.apply_event(PodsDecided(failed=frozenset({gone.uid}), at=EPOCH))
    builder.apply_event(DeletionMarked(names=("gone",), cause="test"))

    ledger = builder.snapshot().ledger
    assert not ledger.placements
    assert not ledger.decisions
    assert not ledger.deletion_marks


def test_one_failed_registration_pauses_nothing_and_two_in_a_row_do(ledger: Ledger):
    """Any node may fail to boot."""
    ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False))
    assert not ledger.view().launch_pauses["p"].is_on_trial

    ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False))
    pause = ledger.view().launch_pauses["p"]
    assert pause.is_on_trial
    assert pause.until == ledger.now + timedelta(minutes=1)


def test_a_pause_does_not_grow_while_it_lasts(ledger: Ledger):
    """The claims of one wave fail together."""
    for _ in range(10):
        ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False))

    assert ledger.view().launch_pauses["p"].until == ledger.now + timedelta(minutes=1)
    assert ledger.view().launch_pauses["p"].failures == 10


def test_each_failed_trial_doubles_the_pause_up_to_ten_minutes(ledger: Ledger):
    """A broken image must not cost money around the clock."""
    waits = []
    ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False))
    for _ in range(6):
        ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False))
        until = ledger.view().launch_pauses["p"].until
        waits.append((until - ledger.now) / timedelta(minutes=1))
        ledger.apply_event(TimePassed(until))

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
        ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False))

    ledger.apply_event(event)

    assert "p" not in ledger.view().launch_pauses


def test_a_new_leader_takes_a_pause_from_the_pools_condition(ledger: Ledger):
    """An unhealthy pool is tried after a minute, not flooded."""
    ledger.apply_event(RegistrationHealthReset(pool_uid="p", results=(False, False)))

    assert ledger.view().launch_pauses["p"].until == ledger.now + timedelta(minutes=1)


def test_a_claim_is_recent_for_a_minute_even_if_it_is_gone_before(ledger: Ledger):
    """It was launched all the same."""
    claim = node_claim("web", created=ledger.now)
    ledger.apply_event(ObjectObserved(claim))
    ledger.apply_event(ObjectRemoved(claim))
    assert [entry.pool for entry in ledger.view().recent_claims.values()] == ["default"]

    ledger.apply_event(TimePassed(ledger.now + timedelta(minutes=1)))
    assert ledger.view().recent_claims == {}


def test_a_claim_of_ours_is_recent_by_our_own_clock(ledger: Ledger):
    """The server's clock may be wrong by hours."""
    made = node_claim("web", created=ledger.now - timedelta(hours=5))
    bare = made.status.model_copy(update={"conditions": ()})

    ledger.apply_event(ObjectWritten(made.model_copy(update={"status": bare})))

    assert len(ledger.view().recent_claims) == 1


def test_claims_that_a_first_list_shows_are_not_all_recent(ledger: Ledger):
    """A new leader counts those of the last minute."""
    ledger.apply_event(ObjectObserved(node_claim("old", created=ledger.now - timedelta(minutes=5))))

    assert ledger.view().recent_claims == {}


def test_a_demand_is_paused_whatever_else_fits_until_a_node_fits_it(ledger: Ledger):
    def settle(*demands, succeeded):
        ledger.apply_event(
            RegistrationSettled(pool_uid="p", succeeded=succeeded, demands=tuple(demands))
        )

    for minutes in (1, 2, 4, 8, 10, 10):
        settle("large", succeeded=False)
        settle("large", succeeded=False)
        settle("small", succeeded=True)
        pause = ledger.view().demand_pauses["p large"]
        assert pause.is_on_trial
        assert pause.until == ledger.now + timedelta(minutes=minutes)
        ledger.apply_event(TimePassed(pause.until - timedelta(seconds=1)))
        assert "p" not in ledger.view().launch_pauses
        ledger.apply_event(TimePassed(pause.until))
    settle("large", "small", succeeded=True)
    assert ledger.view().demand_pauses == {}


def test_failures_of_a_paused_demand_say_nothing_of_the_pool(ledger: Ledger):
    """Other pods would wait for ever while a workload has a broken image of its own."""
    failure = RegistrationSettled(pool_uid="p", succeeded=False, demands=("large",))
    for _ in range(2):
        ledger.apply_event(failure)
    pause = ledger.view().launch_pauses["p"]
    ledger.apply_event(TimePassed(pause.until))
    ledger.apply_event(failure)
    assert ledger.view().launch_pauses["p"] == pause
    assert ledger.view().registration_health["p"] == (False, False, False)
    ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False, demands=("small",)))
    assert ledger.view().launch_pauses["p"].wait == 2 * pause.wait


def test_a_changed_pool_or_class_ends_the_pauses_of_demands(ledger: Ledger):
    for _ in range(2):
        ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False, demands=("large",)))
    ledger.apply_event(RegistrationHealthReset(pool_uid="p", results=(False, False)))
    assert ledger.view().demand_pauses
    ledger.apply_event(RegistrationHealthReset(pool_uid="q"))
    assert ledger.view().demand_pauses
    ledger.apply_event(RegistrationHealthReset(pool_uid="p"))
    assert ledger.view().demand_pauses == {}


def test_a_demand_that_nobody_has_any_more_is_forgotten(ledger: Ledger):
    ledger.apply_event(RegistrationSettled(pool_uid="p", succeeded=False, demands=("large",)))
    ledger.apply_event(TimePassed(ledger.now + timedelta(minutes=59)))
    assert "p large" in ledger.view().demand_pauses
    ledger.apply_event(TimePassed(ledger.now + timedelta(minutes=2)))
    assert ledger.view().demand_pauses == {}


# -- the wall clock is set --------------------------------------------------------------------


def filled(start) -> Ledger:
    """Make a ledger with an entry in every table that has instants."""
    ledger = Ledger()
    ledger.apply_event(TimePassed(start))
    claim, waiting = node_claim("web-1"), pod("web")
    metadata = claim.metadata.model_copy(update={"creation_timestamp": None})
    bare = claim.status.model_copy(update={"conditions": ()})
    claim = claim.model_copy(update={"metadata": metadata, "status": bare})
    exhaust(ledger, start)
    ledger.apply_event(NodesNominated(names=("web-1",), until=start + timedelta(seconds=20)))
    ledger.apply_event(ObjectObserved(waiting))
    ledger.apply_event(PodsDecided(placed={waiting.uid: "web-1"}, at=start))
    ledger.apply_event(ObjectWritten(claim))
    ledger.apply_event(ObjectObserved(ending("ending", EPOCH, grace_seconds=30)))
    ledger.apply_event(PodReplacementStarted("ending"))
    nominated = msgspec.structs.replace(pod("nominated"), nominated_node_name="web-1")
    ledger.apply_event(ObjectObserved(nominated))
    ledger.apply_event(LaunchCallStarted("open", start))
    ledger.apply_event(LaunchCallFinished(claim_uid=claim.uid, launched=claim, at=start))
    for _ in range(2):
        ledger.apply_event(RegistrationSettled(pool_uid="pool", succeeded=False, demands=("a",)))
    return ledger


@pytest.mark.parametrize("hours", [6, -6])
def test_every_instant_moves_with_the_wall_clock(hours):
    """As if all of it had happened by the clock as it is now."""
    moved, expected = filled(EPOCH), filled(EPOCH + timedelta(hours=hours))
    instants = set(TABLES) - {
        "deletion_marks", "expected", "registration_health", "registration_failures",
    }  # fmt: skip

    moved.apply_event(ClockSet(timedelta(hours=hours)))

    assert moved.now == expected.now
    for name in instants:
        table = getattr(moved.view(), name)
        assert dict(table) == dict(getattr(expected.view(), name)), name
        assert table, name


@pytest.mark.parametrize("hours", [6, -6])
def test_a_clock_change_does_not_change_the_end_of_marks(hours):
    """A mark of three minutes lasts three minutes."""
    ledger, by = filled(EPOCH), timedelta(hours=hours)
    ledger.apply_event(ClockSet(by))
    ledger.apply_event(TimePassed(at(minutes=2) + by))
    assert ledger.view().is_unavailable(MASK, ledger.now)
    assert not ledger.view().nominations

    ledger.apply_event(TimePassed(at(minutes=3) + by))
    assert not ledger.view().is_unavailable(MASK, ledger.now)
    ledger.apply_event(TimePassed(at(minutes=6, seconds=1) + by))
    assert not ledger.view().unavailable_offerings


def test_an_instant_beyond_the_calendar_is_unchanged():
    """A clock may show anything for a moment."""
    ledger = Ledger()
    ledger.apply_event(ClockSet(timedelta(days=-365 * 30)))
    ledger.apply_event(TimePassed(EPOCH))

    assert ledger.now == EPOCH


def test_a_pod_that_a_rollout_replaces_has_no_place_of_its_own():
    """From the start of the replacement until it ends, or the pod is gone."""
    ledger = Ledger()
    ledger.apply_event(TimePassed(EPOCH))
    moving = pod("web", node_name="web-1")
    ledger.apply_event(ObjectObserved(moving))
    ledger.apply_event(PodsDecided(placed={moving.uid: "web-2"}, at=EPOCH))

    assert ledger.apply_event(PodReplacementStarted(moving.uid))
    assert not ledger.apply_event(PodReplacementStarted(moving.uid)), "said twice"
    assert (dict(ledger.view().replaced_pods), ledger.view().placements) == (
        {moving.uid: EPOCH},
        {},
    )
    assert ledger.apply_event(PodReplacementEnded(moving.uid))
    assert not ledger.apply_event(PodReplacementEnded(moving.uid))

    ledger.apply_event(PodReplacementStarted(moving.uid))
    ledger.apply_event(ObjectRemoved(moving))
    assert not ledger.view().replaced_pods
