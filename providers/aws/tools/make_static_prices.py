"""Write `data/on_demand_prices.json`: prices until the price list was read.

They come from the tables that Karpenter's AWS provider ships, whose files are given:

    go mod download -json github.com/aws/karpenter-provider-aws@latest   # names `Dir`
    python providers/aws/tools/make_static_prices.py $Dir/pkg/providers/pricing/zz_generated.*.go
"""
# ruff: noqa: INP001 - a script, not a module

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parents[1] / "karpenter_provider_aws" / "data"

_REGION: Final = re.compile(r'^\t"([a-z0-9-]+)": \{(.*?)^\t\}', re.MULTILINE | re.DOTALL)
_PRICE: Final = re.compile(r'"([^"]+)": ([0-9.]+)')
_WRITTEN: Final = re.compile(r"generated at (\d{4}-\d{2}-\d{2})")


def prices_of(source: str) -> dict[str, dict[str, object]]:
    """Return, by region, the day of the prices and the price per hour of each type."""
    written = _WRITTEN.search(source)
    return {
        region: {
            "as_of": written[1] if written else "",
            "prices": dict(sorted((name, float(price)) for name, price in _PRICE.findall(body))),
        }
        for region, body in _REGION.findall(source)
    }


if __name__ == "__main__":
    regions: dict[str, dict[str, object]] = {}
    for path in sys.argv[1:]:
        regions |= prices_of(Path(path).read_text(encoding="utf-8"))
    text = json.dumps(dict(sorted(regions.items())), separators=(",", ":"))
    (DATA / "on_demand_prices.json").write_text(f"{text}\n", encoding="utf-8")
