"""Decisions that repeat that nothing was done are no news."""

from __future__ import annotations

from datetime import UTC, datetime

from karpenter_core.api.decisions import Decision, DecisionLaunch, DecisionObstacle
from karpenter_core.api.prices import Price
from karpenter_core.controllers.reconciling.decision_journal import DecisionJournal
from karpenter_core.operator.dashboard.decision_news import DecisionNews

LAUNCH = DecisionLaunch(
    node_claim="general-x", node_pool="general", instance_type="small", zone="a",
    capacity_type="spot", instance_types=3, price_per_hour=Price(0.1, "USD"), pods=2,
)  # fmt: skip
TOO_LARGE = DecisionObstacle(
    kind="Pod", reason="resource", message="too large", count=1, names=("shop/huge",)
)


def decision(number, summary, **fields):
    at = datetime(2030, 1, 1, tzinfo=UTC)
    inputs = f"digest-{number}"
    return Decision(
        id=f"id-{number}", cause="", kind="provision", at=at, summary=summary, inputs=inputs,
        **fields,
    )  # fmt: skip


async def test_pods_that_stay_pending_are_one_entry_until_something_changes():
    journal, shown = DecisionJournal(), []
    DecisionNews(journal).add_sink(lambda item: shown.append(item.id))

    await journal.record(decision(1, "1 pod(s) pending", obstacles=(TOO_LARGE,)))
    await journal.record(decision(2, "1 pod(s) pending", obstacles=(TOO_LARGE,)))
    assert shown == ["id-1"]
    await journal.record(decision(3, "2 pod(s) pending", obstacles=(TOO_LARGE,)))
    await journal.record(decision(4, "1 nodeclaim(s) for 2 pod(s)", launches=(LAUNCH,)))
    await journal.record(decision(5, "1 nodeclaim(s) for 2 pod(s)", launches=(LAUNCH,)))
    await journal.record(decision(6, "2 pod(s) pending", obstacles=(TOO_LARGE,)))

    assert shown == ["id-1", "id-3", "id-4", "id-5", "id-6"]
    assert len(journal.latest()) == 6
