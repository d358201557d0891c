"""A few hours of simulated churn: no move below its floor, and no flapping."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import structlog

from benchmarks.churn import ChurnOutcome, ObservedClaim, count_faults, simulate
from benchmarks.churn_loads import wave
from karpenter_core.api.decisions import Decision, DecisionCandidate, DecisionLaunch
from karpenter_core.api.prices import Price
from karpenter_core.api.savings import SavingsFloor

pytestmark = pytest.mark.timeout(240)  # hours of simulated time, on machines of any speed


@pytest.fixture(autouse=True)
def quiet():
    """Leave out some ten thousand lines of log."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    yield
    structlog.configure(**before)


def run_day(folder, load, policy, *, hours, **options):
    outcome, _ = simulate(load, policy, hours=hours, folder=folder, **options)
    return outcome


@pytest.mark.parametrize(
    ("load", "policy", "hours"),
    [
        ("redis-flap", "WhenEmptyOrUnderutilized", 1.0),
        ("redis-flap", "floor 10%", 1.0),
        pytest.param("hpa", "WhenEmptyOrUnderutilized", 0.75, marks=pytest.mark.cluster_runs),
        pytest.param("hpa", "Balanced", 0.75, marks=pytest.mark.cluster_runs),
    ],
)
def test_a_varying_load_causes_no_flapping(tmp_path, load, policy, hours):
    """Moves are made, each saves what it must, and none is taken back by the next one."""
    outcome = run_day(tmp_path, load, policy, hours=hours)

    assert outcome.commands > 0
    assert (outcome.below_floor, outcome.moved_again, outcome.replaced_again) == (0, 0, 0)
    assert outcome.details == []
    assert (outcome.errors, outcome.pending_pods_at_end) == (0, 0)


@pytest.mark.cluster_runs
def test_a_wave_is_followed_down(tmp_path):
    """Consolidation makes the cluster cheaper after the load falls."""
    options = {"hours": 1.0, "services": wave(timedelta(hours=1))}
    followed = run_day(tmp_path / "a", "wave", "WhenEmptyOrUnderutilized", **options)
    left = run_day(tmp_path / "b", "wave", "none", **options)

    assert followed.faults == 0, followed.details
    assert followed.cost < 0.9 * left.cost
    assert (left.commands, left.moved_pods) == (0, 0)


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def moved(number, *, at, gone="old", before=1.0, launches=1):
    """A consolidation of one node."""
    replaced_node = DecisionCandidate(
        node=gone, node_claim=gone, node_pool="general", price_per_hour=Price(before), pods=2
    )
    launch = DecisionLaunch(
        node_claim="", node_pool="general", instance_type="t", zone="z", capacity_type="on-demand",
        instance_types=1, price_per_hour=Price(0.1), pods=2,
    )  # fmt: skip
    return Decision(
        id=f"id-{number}",
        cause="",
        kind="disrupt",
        at=at,
        summary="",
        reason="Underutilized",
        candidates=(replaced_node,),
        launches=(launch,) * launches,
        price_per_hour_before=Price(before),
        price_per_hour_after=Price(0.1),
    )


def judged(*decisions, claims=(), changes=(), floor="0%"):
    """Count decisions; claims are (name, decision, created, price)."""
    outcome = ChurnOutcome(load="", policy="", hours=1)
    known = {
        name: ObservedClaim(created=created, decision=decision, name=name, price_per_hour=price)
        for name, decision, created, price in claims
    }
    count_faults(outcome, decisions, known, changes, floor=SavingsFloor.parse(floor))
    return outcome


@pytest.mark.parametrize(
    ("paid", "floor", "count"), [(0.9, "0%", 0), (1.0, "0%", 1), (1.1, "0%", 1), (0.9, "20%", 1)]
)
def test_a_replacement_is_valued_at_the_price_of_its_real_offering(paid, floor, count):
    """An equal price is no saving."""
    claims = [("new", "id-1", NOON, paid)]

    assert judged(moved(1, at=NOON), claims=claims, floor=floor).below_floor == count


@pytest.mark.parametrize(("minutes", "paid", "count"), [(20, 0.6, 1), (20, 0.5, 0), (70, 0.6, 0)])
def test_a_replacement_of_consolidation_is_replaced_at_half_its_price(minutes, paid, count):
    """Within the hour, though the load has changed: each change would be a reason otherwise."""
    first, at = moved(1, at=NOON, before=2.0), NOON + minutes * MINUTE
    again = moved(2, at=at, gone="new", before=1.0)
    claims = [("new", "id-1", NOON, 1.0), ("newer", "id-2", at, paid)]

    result = judged(first, again, claims=claims, changes=[NOON + 10 * MINUTE])
    assert (result.below_floor, result.replaced_again) == (count, 0)


def test_a_replacement_that_is_replaced_within_the_hour_is_a_fault():
    """Unless the load has changed, or nothing comes in its place."""
    first, claims = moved(1, at=NOON), [("new", "id-1", NOON, 0.5), ("newer", "id-2", NOON, 0.1)]
    again = moved(2, at=NOON + 50 * MINUTE, gone="new", before=0.5)

    assert judged(first, again, claims=claims).replaced_again == 1
    after = judged(first, again, claims=claims, changes=[NOON + 20 * MINUTE])
    assert (after.replaced_again, after.replaced_again_after_change) == (0, 1)
    later = moved(2, at=NOON + 61 * MINUTE, gone="new", before=0.5)
    assert judged(first, later, claims=claims).faults == 0
    deleted = moved(2, at=NOON + 50 * MINUTE, gone="new", before=0.5, launches=0)
    assert judged(first, deleted, claims=claims[:1]).faults == 0
