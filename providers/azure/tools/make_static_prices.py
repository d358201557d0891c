"""Write `data/on_demand_prices.json`: prices until the price list was read.

They are read from Azure's public price list, for the regions that are given. Sizes that the list names
without a price are kept by name: their series are known.

    python providers/azure/tools/make_static_prices.py eastus westeurope
"""
# ruff: noqa: INP001 - a script, not a module

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from karpenter_provider_azure.catalogue.price_reader import RetailPriceList, read_price_items
from karpenter_provider_azure.catalogue.size_names import read_size_name
from karpenter_provider_azure.json_service import JsonService

DATA: Final = (
    Path(__file__).parents[1] / "karpenter_provider_azure" / "data" / "on_demand_prices.json"
)


def is_size(name: str) -> bool:
    """Whether a name is that of a VM size; the list has hosts and cloud services as well."""
    try:
        read_size_name(name)
    except ValueError:
        return False
    return True


def table_of(regions: list[str]) -> dict[str, object]:
    """Return the prices of regions by size, and the names that have none."""
    prices = RetailPriceList(JsonService())
    today = datetime.now(UTC).date().isoformat()
    tables: dict[str, dict[str, object]] = {}
    priced: set[str] = set()
    named: set[str] = set()
    for region in regions:
        items = prices.items(region)
        found = {n: p for n, p in read_price_items(items).on_demand.items() if is_size(n)}
        tables[region.lower()] = {"as_of": today, "prices": found}
        priced |= found.keys()
        named |= {str(item.get("armSkuName") or "") for item in items}
    unpriced = sorted(name for name in named - priced if is_size(name))
    return {"regions": tables, "unpriced": unpriced}


if __name__ == "__main__":
    text = json.dumps(table_of(sys.argv[1:]), separators=(",", ":"), sort_keys=True)
    DATA.write_text(f"{text}\n", encoding="utf-8")
