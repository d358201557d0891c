"""Disruption budgets: nodes that may be disrupted now (cases 13-28, 185)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.durations import Duration
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, INSTANCE_TERMINATING
from karpenter_core.api.nodepool import Budget, Disruption
from karpenter_core.disruption.budgets import (
    UNLIMITED,
    DisruptionReason,
    allowed_by,
    allowed_disruptions,
    blocking_notice,
    budget_errors,
    inactive_from,
    is_active,
    next_opening,
    pool_budgets,
)
from karpenter_core.errors import BadInputError
from karpenter_core.state.events import DeletionMarked
from karpenter_core.testing.builders import node_pool
from karpenter_core.testing.state_builders import (
    node,
    node_and_claim,
    node_claim,
    synced_state,
    with_claim_conditions,
)
from tests.properties import with_examples

NOW = datetime(2000, 6, 15, 12, 30, 30, tzinfo=UTC)
EMPTY, DRIFTED, UNDERUTILIZED = (
    DisruptionReason.EMPTY,
    DisruptionReason.DRIFTED,
    DisruptionReason.UNDERUTILIZED,
)
EVERY_MINUTE = "* * * * *"


def budget(nodes="10", *, schedule=None, duration=None, reasons=None):
    return Budget(
        nodes=nodes,
        schedule=schedule,
        duration=Duration(duration) if duration else None,
        reasons=tuple(reasons) if reasons is not None else None,
    )


def windowed(nodes, *, schedule=EVERY_MINUTE, reasons=None):
    return budget(nodes, schedule=schedule, duration="1h", reasons=reasons)


def pool(*budgets, name="default"):
    return node_pool(name, disruption=Disruption(budgets=tuple(budgets)))


def fixture(*, weekly="@weekly", schedule=EVERY_MINUTE, yearly=()):
    """The six budgets of the acceptance cases; `yearly` ones are inactive."""

    def when(number):
        return "@yearly" if number in yearly else schedule

    return [
        windowed("10", schedule=when(0)),
        windowed("100", schedule=when(1)),
        windowed("100%", schedule=when(2)),
        windowed("15", schedule=when(3), reasons=(DRIFTED, UNDERUTILIZED)),
        windowed("5", schedule=when(4), reasons=(DRIFTED,)),
        windowed("0", schedule=when(5) if 5 in yearly else weekly, reasons=tuple(DisruptionReason)),
    ]  # fmt: skip


def allowed(*budgets, total=100, now=NOW):
    return {
        str(reason): allowed_disruptions(pool(*budgets), reason, total=total, now=now)
        for reason in DisruptionReason
    }


def every(value):
    return {str(reason): value for reason in DisruptionReason}


class TestArithmetic:
    def test_an_active_zero_allows_nothing(self):
        """Case 13."""
        assert allowed(*fixture(weekly=EVERY_MINUTE)) == every(0)

    def test_inactive_budgets_allow_everything(self):
        """Case 14."""
        assert allowed(*fixture(yearly=range(6))) == every(UNLIMITED)

    def test_the_least_active_one_counts(self):
        """Cases 15 and 16."""
        assert allowed(*fixture(yearly=(3, 4))) == every(10)
        assert allowed(windowed("10")) == every(10)

    def test_reasons_have_their_own(self):
        """Case 17."""
        budgets = [*fixture(), windowed("4", reasons=(EMPTY,))]
        assert allowed(*budgets) == {"Empty": 4, "Drifted": 5, "Underutilized": 10, "Shutdown": 10}

    def test_no_budget_for_a_reason_is_no_restriction(self):
        assert allowed(budget("3", reasons=(EMPTY,)))["Drifted"] == UNLIMITED

    @pytest.mark.parametrize(
        "bad", [windowed("1", schedule="@wrongly"), budget("1000a%"), budget("9" * 5_000)]
    )
    def test_malformed_budgets_are_errors_and_allow_nothing(self, bad):
        """Case 18."""
        with pytest.raises(BadInputError):
            allowed_by(bad, 10, NOW)
        broken = pool(budget("100%"), bad)
        (error,) = budget_errors(broken, NOW)
        assert error.startswith("NodePool default: spec.disruption.budgets[1]: ")
        snapshot = synced_state(broken, *node_and_claim("a")).snapshot()
        assert (
            pool_budgets(snapshot, EMPTY, now=NOW, failed=None, memory=None)["default"].remaining
            == 0
        )

    def test_a_malformed_budget_of_another_reason_blocks_the_pool_too(self):
        broken = pool(budget("x", reasons=(DRIFTED,)))
        snapshot = synced_state(broken, *node_and_claim("a")).snapshot()
        assert (
            pool_budgets(snapshot, EMPTY, now=NOW, failed=None, memory=None)["default"].allowed == 0
        )

    @pytest.mark.parametrize(
        ("nodes", "total", "value"),
        [("10", 3, 10), ("100%", 100, 100), ("10%", 100, 10), ("10%", 1, 1), ("34%", 10, 4), ("0%", 99, 0)],
    )  # fmt: skip
    def test_numbers_and_percentages(self, nodes, total, value):
        """Case 19; percentages round up."""
        assert allowed_by(budget(nodes), total, NOW) == value

    def test_inactive_is_unlimited(self):
        """Case 19."""
        assert allowed_by(windowed("10", schedule="@yearly"), 100, NOW) == UNLIMITED

    @given(st.integers(0, 100), st.integers(0, 5000))
    @with_examples(100)
    def test_a_percentage_is_never_less_than_its_share(self, percent, total):
        value = allowed_by(budget(f"{percent}%"), total, NOW)
        assert value - 1 < total * percent / 100 <= value


class TestActivity:
    @pytest.mark.parametrize(
        ("schedule", "duration", "at", "active"),
        [
            ("@yearly", "24h", datetime(2000, 1, 1, 12, tzinfo=UTC), True),  # case 21
            ("@daily", "48h", datetime(2000, 6, 15, tzinfo=UTC), True),  # case 22
            ("30 6 * * SUN", "6h", datetime(2000, 6, 18, tzinfo=UTC), False),  # case 23
            ("@daily", "30m", datetime(2000, 6, 15, 0, 0, tzinfo=UTC), True),
            ("@daily", "30m", datetime(2000, 6, 15, 0, 29, 59, tzinfo=UTC), True),
            ("@daily", "30m", datetime(2000, 6, 15, 0, 30, tzinfo=UTC), False),
            ("@hourly", "1h", NOW, True),
            ("0 0 31 2 *", "1000h", NOW, False),
        ],
    )
    def test_windows(self, schedule, duration, at, active):
        assert is_active(budget(schedule=schedule, duration=duration), at) is active

    def test_the_clock_is_utc_whatever_zone_it_is_shown_in(self):
        """Case 20."""
        daily = budget(schedule="@daily", duration="30m")
        plus_one = timezone(timedelta(hours=1))
        assert is_active(daily, datetime(2000, 6, 15, 1, 15, tzinfo=plus_one))
        assert not is_active(daily, datetime(2000, 6, 15, 0, 15, tzinfo=plus_one))

    def test_without_schedule_always(self):
        assert is_active(budget(), NOW)

    def test_half_a_window_is_an_error(self):
        with pytest.raises(BadInputError):
            is_active(budget(schedule="@daily"), NOW)


class TestCounting:
    def count(self, *objects, nodes="100%", marked=()):
        builder = synced_state(pool(budget(nodes)), *objects)
        builder.apply_event(DeletionMarked(names=tuple(marked), cause="x"))
        return pool_budgets(builder.snapshot(), EMPTY, now=NOW, failed=None, memory=None)["default"]

    def ten(self):
        return [half for number in range(10) for half in node_and_claim(f"n{number}")]

    def test_only_initialised_nodes_of_ours_that_are_not_terminating_count(self):
        """Case 25."""
        its_node, claim = node_and_claim("going")
        terminating = with_claim_conditions(claim, INSTANCE_TERMINATING, now=NOW)
        allowed = self.count(
            *self.ten(),
            node("foreign"),
            *node_and_claim("young", stage="Registered"),
            its_node,
            terminating,
        )
        assert (allowed.total, allowed.allowed, allowed.remaining) == (10, 10, 10)

    def test_a_claim_that_only_a_foreign_finalizer_holds_uses_nothing_up(self):
        """Its Node and its instance are gone; upstream counts what has a Node."""
        held = node_claim(
            "held", stage="Initialized", deleted=NOW, finalizers=("example.com/audit",)
        )
        allowed = self.count(*self.ten(), held, nodes="1")
        assert (allowed.total, allowed.consuming, allowed.remaining) == (10, 0, 1)

    def test_leaving_nodes_use_up_the_budget_down_to_zero(self):
        """Case 26."""
        allowed = self.count(*self.ten(), nodes="10%", marked=("n0", "n1"))
        assert (allowed.allowed, allowed.consuming, allowed.remaining) == (1, 2, 0)

    def test_marked_and_deleting_count_alike(self):
        """Case 27."""
        deleting = node_claim("n0", stage="Initialized", deleted=NOW)
        assert self.count(*self.ten(), deleting, marked=("n1",)).remaining == 8

    def test_nodes_with_marks_of_a_failed_command_count(self):
        """It takes no pods until it is unmarked, which a failing API server may delay."""
        tainted, _ = node_and_claim("n0", taints=("karpenter.sh/disrupted:NoSchedule",))
        _, claim = node_and_claim("n1")
        reasoned = with_claim_conditions(claim, DISRUPTION_REASON, now=NOW)
        assert self.count(*self.ten(), tainted, reasoned, nodes="3").remaining == 1

    def test_nodes_that_are_not_ready_count(self):
        """Case 28."""
        silent = [half for n in ("s1", "s2") for half in node_and_claim(n, ready="Unknown")]
        assert self.count(*self.ten()[:16], *silent).remaining == 8

    def test_a_blocking_budget_is_reported_on_a_pool_with_nodes(self):
        blocked = pool(budget("0"))
        allowed = self.count(*self.ten(), nodes="0")
        notice = blocking_notice(blocked, allowed)
        assert notice is not None
        assert notice.message == (
            "No allowed disruptions for disruption reason Empty due to blocking budget"
        )
        assert blocking_notice(blocked, self.count(nodes="0")) is None
        assert blocking_notice(blocked, self.count(*self.ten(), nodes="1")) is None


class TestWindowEnds:
    """The time at which a budget that is active ends to restrict anything."""

    @given(
        st.sampled_from(("@hourly", "*/7 * * * *", "15,45 * * * *", "0 */5 * * *", "30 12 * * *")),
        st.integers(1, 400),
        st.integers(0, 3 * 1440),
    )
    def test_a_budget_is_active_until_its_end_and_not_then(self, schedule, minutes, later):
        its_budget = budget("0", schedule=schedule, duration=f"{minutes}m")
        now = NOW + timedelta(minutes=later)
        end = inactive_from(its_budget, now)

        if end is None:
            assert is_active(its_budget, now + timedelta(days=1))
            return
        assert not is_active(its_budget, end)
        assert (end > now) == is_active(its_budget, now)
        minute = now
        while minute < end:
            assert is_active(its_budget, minute)
            minute += timedelta(minutes=1)

    @pytest.mark.parametrize("half", [{"schedule": "0 12 * * *"}, {"duration": "3h"}])
    def test_half_a_window_never_ends(self, half):
        """It is refused where a budget is read."""
        assert inactive_from(budget("0", **half), NOW) is None

    def test_the_first_end_of_a_pool_counts(self):
        """A budget without a schedule has none, and one that is inactive neither."""
        long, short = (budget("0", schedule="0 12 * * *", duration=each) for each in ("3h", "90m"))
        later = budget("0", schedule="0 18 * * *", duration="1h")

        noon = NOW.replace(minute=0, second=0)
        assert next_opening(pool(budget("1"), later), NOW) is None
        assert next_opening(pool(budget("1"), long, short, later), NOW) == noon + timedelta(
            minutes=90
        )
