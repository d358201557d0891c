"""Whether the machines of a pool come to register: the condition NodeRegistrationHealthy. Pure.

The last four results count; two failures among them make the pool unhealthy. It is for people:
nothing is decided by it. A change of the pool or of its NodeClass starts the account anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import (
    AWAITING_RECONCILIATION,
    FALSE,
    TRUE,
    UNKNOWN,
    find,
    is_false,
)
from karpenter_core.api.nodepool import NODE_REGISTRATION_HEALTHY, REGISTRATION_FAILED
from karpenter_core.lifecycle.nodepool.status import with_condition
from karpenter_core.state.events import RegistrationHealthReset

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool

__all__ = ["HealthStep", "with_registration_health"]

UNHEALTHY_FAILURES: Final = 2  # upstream default: half of the last four
DID_NOT_REGISTER: Final = (REGISTRATION_FAILED, "Failed to register node")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthStep:
    """The pool as it should be, and how the remembered results are to be corrected, if at all."""

    pool: NodePool
    reset: RegistrationHealthReset | None = None


def with_registration_health(
    pool: NodePool,
    node_class: NodeClass,
    results: tuple[bool, ...] | None,
    *,
    now: datetime,
    failure: tuple[str, str] = ("", ""),
) -> HealthStep:
    """Say what the last registrations amount to.

    `results` are the last four, oldest first, None when nothing is remembered; `failure` is reason
    and message of the last launch that failed, empty for what was launched and did not register.
    """
    condition = find(pool.status.conditions, NODE_REGISTRATION_HEALTHY)
    generation = node_class.metadata.generation
    changed = (
        condition is None
        or pool.status.node_class_observed_generation != generation
        or condition.observed_generation != pool.metadata.generation
    )
    if pool.status.node_class_observed_generation != generation:
        status = pool.status.model_copy(update={"node_class_observed_generation": generation})
        pool = pool.model_copy(update={"status": status})
    if changed:
        unknown = with_condition(
            pool,
            type=NODE_REGISTRATION_HEALTHY,
            status=UNKNOWN,
            reason=AWAITING_RECONCILIATION,
            message="object is awaiting reconciliation",
            now=now,
        )
        return HealthStep(pool=unknown, reset=RegistrationHealthReset(pool_uid=pool.uid))
    if results is None:
        known = {TRUE: (True,), FALSE: (False, False)}.get(condition.status if condition else "")
        if known is None:
            return HealthStep(pool=pool)
        return HealthStep(
            pool=pool, reset=RegistrationHealthReset(pool_uid=pool.uid, results=known)
        )
    return HealthStep(pool=_judged(pool, results, failure, now))


def _judged(
    pool: NodePool, results: tuple[bool, ...], failure: tuple[str, str], now: datetime
) -> NodePool:
    """Set the condition by the last result that changed it.

    A success makes a pool healthy only once failures are few, and a failure makes it unhealthy
    only once they are many; each of the results is judged with those before it, as if the pool had
    been looked at when it came in.
    """
    for count in range(len(results), 0, -1):
        healthy = results[:count].count(False) < UNHEALTHY_FAILURES
        if healthy and results[count - 1]:
            return with_condition(
                pool,
                type=NODE_REGISTRATION_HEALTHY,
                status=TRUE,
                reason=NODE_REGISTRATION_HEALTHY,
                now=now,
            )
        if not healthy and not results[count - 1]:
            if is_false(pool.status.conditions, NODE_REGISTRATION_HEALTHY):
                return pool  # the first of them said why
            reason, message = failure if failure[0] else DID_NOT_REGISTER
            return with_condition(
                pool,
                type=NODE_REGISTRATION_HEALTHY,
                status=FALSE,
                reason=reason,
                message=message,
                now=now,
            )
    return pool
