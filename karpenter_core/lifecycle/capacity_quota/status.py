"""Computes the status of a CapacityQuota: its use and condition Reconciled.

Conditions of other writers stay. Cluster Autoscaler has one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, final

from karpenter_core.api.capacity_quota import (
    RECONCILED,
    RECONCILIATION_FAILED,
    RECONCILIATION_SUCCEEDED,
)
from karpenter_core.api.conditions import FALSE, TRUE
from karpenter_core.api.labels import PRICE_PER_HOUR
from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.api.quantities import LARGEST_AMOUNT, format_amount
from karpenter_core.lifecycle.changes import MergePatch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.capacity_quota import CapacityQuota
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.state.capacity_quotas import QuotaReading

__all__ = ["QuotaStatus", "limit_notice", "quota_status"]

_UNKNOWN_PRICE = f"the price of a node that it counts is not known, for {PRICE_PER_HOUR}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStatus:
    """The status of a quota: its patch, None if nothing changed, and its exhausted resources."""

    patch: MergePatch | None
    exhausted: tuple[str, ...]


def quota_status(
    quota: CapacityQuota, reading: QuotaReading, used: Mapping[str, int], *, now: datetime
) -> QuotaStatus:
    """Return the status of a quota of which so much is used.

    A price that is unknown is left out, and the condition says so.
    """
    known = {name: amount for name, amount in used.items() if amount < LARGEST_AMOUNT}
    problems = [*reading.problems, *((_UNKNOWN_PRICE,) if len(known) < len(used) else ())]
    status: JsonObject = {
        "used": {"resources": {name: format_amount(name, known[name]) for name in sorted(known)}},
        "conditions": _conditions(quota, problems, now=now),
        "observedGeneration": quota.metadata.generation,
    }
    exhausted = tuple(
        name for name in sorted(known) if known[name] >= reading.limits.get(name, LARGEST_AMOUNT)
    )
    if all(quota.status.get(name) == value for name, value in status.items()):
        return QuotaStatus(patch=None, exhausted=exhausted)
    old = quota.status.get("used")
    resources = old.get("resources") if isinstance(old, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - as the server has it
    gone = set(cast("Mapping[str, object]", resources or {})) - known.keys()
    status["used"]["resources"] |= dict.fromkeys(sorted(gone))
    return QuotaStatus(
        patch=MergePatch(body={"status": status}, resource_version=quota.metadata.resource_version),
        exhausted=exhausted,
    )


def _conditions(
    quota: CapacityQuota, problems: Sequence[str], *, now: datetime
) -> list[JsonObject]:
    old = quota.status.get("conditions")
    conditions: list[JsonObject] = (
        [
            cast("JsonObject", item)
            for item in cast("Sequence[object]", old)
            if isinstance(item, dict)
        ]
        if isinstance(old, Sequence) and not isinstance(old, str)
        else []
    )
    own = next((item for item in conditions if item.get("type") == RECONCILED), None)
    status = FALSE if problems else TRUE
    since = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    if own is not None and own.get("status") == status:
        since = own.get("lastTransitionTime") or since
    condition: JsonObject = {
        "type": RECONCILED,
        "status": status,
        "reason": RECONCILIATION_FAILED if problems else RECONCILIATION_SUCCEEDED,
        "message": "; ".join((*problems, "nodes that the quota may count are not launched"))
        if problems
        else "",
        "lastTransitionTime": since,
        "observedGeneration": quota.metadata.generation,
    }
    if own is None:
        return [*conditions, condition]
    return [condition if item is own else item for item in conditions]


def limit_notice(
    quota: CapacityQuota,
    reading: QuotaReading,
    used: Mapping[str, int],
    exhausted: Sequence[str],
) -> Notice | None:
    """Return the Event about exhausted resources or about a quota that cannot be read, if any."""
    regarding = ObjectRef(
        api_version=type(quota).resource.api_version,
        kind=type(quota).resource.kind,
        name=quota.name,
        uid=quota.uid,
    )
    if reading.problems:
        message = f"{'; '.join(reading.problems)}; nodes that the quota may count are not launched"
        return Notice(
            regarding=regarding, type="Warning", reason="QuotaUnreadable", message=message
        )
    if not exhausted:
        return None
    amounts = ", ".join(
        f"{name}: {format_amount(name, used[name])} of {format_amount(name, reading.limits[name])}"
        for name in exhausted
    )
    return Notice(
        regarding=regarding,
        type="Warning",
        reason="LimitReached",
        message=f"the limit is used up ({amounts}): no further node that the quota counts is launched",
    )
