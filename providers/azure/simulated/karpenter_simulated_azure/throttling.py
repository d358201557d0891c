"""Call rates that Azure grants, by bucket; the numbers of compute and network are unverified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.rates import CallRate

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AZURE_RATES"]

AZURE_RATES: Final[Mapping[str, CallRate]] = {
    "subscription-reads": CallRate(bucket=250, refill=25),
    "subscription-writes": CallRate(bucket=200, refill=10),
    "subscription-deletes": CallRate(bucket=200, refill=10),
    "compute-writes": CallRate(bucket=200, refill=40 / 60),
    "compute-reads": CallRate(bucket=500, refill=500 / 60),
    "network-writes": CallRate(bucket=200, refill=1000 / 300),
    "network-reads": CallRate(bucket=500, refill=10_000 / 300),
    "graph": CallRate(bucket=15, refill=15 / 5),
}
"""The rates of the subscription are the documented ones of Azure Resource Manager, and the rate of Resource
Graph that of one user; a poll of an operation takes from the subscription alone."""
