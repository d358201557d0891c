"""Add regions to `data/on_demand_prices.json`, the shipped prices.

The provider plans with them until it has read the account's own. Alibaba Cloud publishes its prices
by DescribePrice alone, to who has an account: run it with the credentials of one of the Chinese
site (the rates of the table are in CNY) that has no discount.

    ALIBABA_CLOUD_ACCESS_KEY_ID=… ALIBABA_CLOUD_ACCESS_KEY_SECRET=… \
        python providers/alibabacloud/tools/make_shipped_prices.py cn-hangzhou cn-beijing …

A region is about a thousand calls, five a second. Regions that are not named stay as they are.
"""
# ruff: noqa: INP001 - a script, not a module

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from karpenter_provider_alibabacloud.catalogue.region_types import fetch_region_types
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.price_queries import fetch_price
from karpenter_provider_alibabacloud.sdk import CloudClients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

TABLE: Final = (
    Path(__file__).parents[1] / "karpenter_provider_alibabacloud" / "data" / "on_demand_prices.json"
)
CALLS_PER_SECOND: Final = 5


def prices_of(clients: CloudClients, sleep: Callable[[float], None] = time.sleep) -> JsonObject:
    """Return the entry of a region; types without a price, or in a second currency, are left out."""

    def call(action: str, parameters: Mapping[str, object]) -> JsonMapping:
        sleep(1 / CALLS_PER_SECOND)
        with core_errors_of():
            return clients.ecs.call(action, {"RegionId": clients.region, **parameters})

    prices: dict[str, float] = {}
    currency = ""
    for name in fetch_region_types(clients).value:
        answer = fetch_price(call, name)
        if answer is not None and currency in {"", answer[1]}:
            prices[name], currency = answer
    return {"as_of": datetime.now(UTC).date().isoformat(), "currency": currency, "prices": prices}


def with_region(table: JsonMapping, region: str, entry: JsonMapping) -> JsonObject:
    """Return the table with a region put in, or in place of what it had."""
    regions = {**table["regions"], region: entry}
    return {**table, "regions": dict(sorted(regions.items()))}


if __name__ == "__main__":
    for each in sys.argv[1:]:
        with CloudClients(region=each) as made:
            found = prices_of(made)
        known = json.loads(TABLE.read_text(encoding="utf-8"))
        text = json.dumps(with_region(known, each, found), indent=1, ensure_ascii=False)
        TABLE.write_text(f"{text}\n", encoding="utf-8")
