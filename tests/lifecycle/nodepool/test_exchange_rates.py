"""A NodePool without an exchange rate says what to set."""

from __future__ import annotations

from karpenter_core.lifecycle.nodepool.exchange_rates import with_exchange_rates
from karpenter_core.testing.builders import EPOCH, node_pool


def condition(pool):
    return next((c for c in pool.status.conditions if c.type == "PricesComparable"), None)


def judged(*unrated, pool=None):
    return with_exchange_rates(pool or node_pool(), frozenset(unrated), currency="USD", now=EPOCH)


def test_a_currency_without_a_rate_is_named_with_the_setting():
    reported = condition(judged("EUR"))

    assert (reported.status, reported.reason) == ("False", "NoExchangeRate")
    assert reported.message == (
        "no exchange rate from EUR to USD: nodes of this NodePool are not consolidated to save money, "
        "and costs do not include them; set --exchange-rates (EXCHANGE_RATES) with EUR=RATE, or "
        "--currency (CURRENCY) to the currency of the prices"
    )


def test_several_currencies_are_named_in_their_order():
    assert condition(judged("EUR", "CNY")).message.startswith(
        "no exchange rate from CNY, EUR to USD"
    )


def test_with_a_rate_there_is_no_condition():
    assert judged().status.conditions == node_pool().status.conditions
    mended = judged(pool=judged("EUR"))
    assert condition(mended) is None


def test_nothing_is_written_twice():
    pool = judged("EUR")
    assert judged("EUR", pool=pool) is pool
