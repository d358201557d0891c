"""Sets PricesComparable: False while a price has no exchange rate.

A price in another currency than the reporting one counts as unknown without a rate. Launches go on, by
weight and by the order of prices in the pool, but no node is consolidated to save money; without the
condition, users would not notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool

__all__ = ["PRICES_COMPARABLE", "with_exchange_rates"]

PRICES_COMPARABLE: Final = "PricesComparable"
"""Condition beside Ready: False while a price has no exchange rate; absent otherwise."""
NO_EXCHANGE_RATE: Final = "NoExchangeRate"


def with_exchange_rates(
    pool: NodePool, unrated: AbstractSet[str], *, currency: str, now: datetime
) -> NodePool:
    """Return the pool with the condition if `unrated` currencies have no rate to the reporting one."""
    if unrated:
        currencies = sorted(unrated)
        return with_condition(
            pool,
            type=PRICES_COMPARABLE,
            status=FALSE,
            reason=NO_EXCHANGE_RATE,
            message=f"no exchange rate from {', '.join(currencies)} to {currency}: nodes of this "
            "NodePool are not consolidated to save money, and costs do not include them; set "
            f"--exchange-rates (EXCHANGE_RATES) with {','.join(f'{n}=RATE' for n in currencies)}, "
            "or --currency (CURRENCY) to the currency of the prices",
            now=now,
        )
    return without_condition(pool, PRICES_COMPARABLE)
