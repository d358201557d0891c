"""Sets the condition NodeRegistrationHealthy from a pool's last launches.

The last four results count; two failures among them make the pool unhealthy. The condition is for
users only: no decision depends on it. A change of the pool or of its NodeClass resets the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import (
    AWAITING_RECONCILIATION,
    FALSE,
    TRUE,
    UNKNOWN,
    find_condition,
    is_false,
)
from karpenter_core.api.nodepool import NODE_REGISTRATION_HEALTHY, REGISTRATION_FAILED
from karpenter_core.lifecycle.nodepool.status import with_condition
from karpenter_core.state.events import RegistrationHealthReset

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool

__all__ = ["RegistrationHealthStep", "with_registration_health"]

UNHEALTHY_FAILURES: Final = 2  # upstream default: half of the last four
DID_NOT_REGISTER: Final = (REGISTRATION_FAILED, "Failed to register node")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationHealthStep:
    """The pool as it should be, and the reset of the results in the ledger, if any."""

    pool: NodePool
    reset: RegistrationHealthReset | None = None


def with_registration_health(
    pool: NodePool,
    node_class: NodeClass,
    results: tuple[bool, ...] | None,
    *,
    now: datetime,
    failure: tuple[str, str],
) -> RegistrationHealthStep:
    """Return the pool with the condition for the last registrations.

    `results` are the last four, oldest first, None if the ledger has none; `failure` is the reason and
    message of the last failed launch, empty for an instance that launched and did not register.
    """
    condition = find_condition(pool.status.conditions, NODE_REGISTRATION_HEALTHY)
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
        return RegistrationHealthStep(
            pool=unknown, reset=RegistrationHealthReset(pool_uid=pool.uid)
        )
    if results is None:
        implied = {TRUE: (True,), FALSE: (False, False)}.get(condition.status if condition else "")
        if implied is None:
            return RegistrationHealthStep(pool=pool)
        return RegistrationHealthStep(
            pool=pool, reset=RegistrationHealthReset(pool_uid=pool.uid, results=implied)
        )
    return RegistrationHealthStep(pool=_judged(pool, results, failure, now))


def _judged(
    pool: NodePool, results: tuple[bool, ...], failure: tuple[str, str], now: datetime
) -> NodePool:
    """Set the condition by the last result that changed it.

    A success makes a pool healthy only if failures are few, and a failure makes it unhealthy only if
    they are many. Each result counts with those before it, as if evaluated when it came in.
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
                return pool  # the first failure gave the reason
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
