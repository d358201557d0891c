"""Call rates that Azure grants, by bucket.

Those of virtual machines are the documented ones (Azure, compute throttling limits): for the subscription in
a region, and for each virtual machine (`compute-put-vm/NAME`). Those of network, and of what else compute
has, are unverified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AZURE_RATES"]

AZURE_RATES: Final[Mapping[str, SimulatedCallRate]] = {
    "subscription-reads": SimulatedCallRate(bucket=250, refill=25),
    "subscription-writes": SimulatedCallRate(bucket=200, refill=10),
    "subscription-deletes": SimulatedCallRate(bucket=200, refill=10),
    "compute-put-vm": SimulatedCallRate(bucket=1500, refill=500 / 60),
    "compute-update-vm": SimulatedCallRate(bucket=1500, refill=500 / 60),
    "compute-delete-vm": SimulatedCallRate(bucket=1500, refill=500 / 60),
    "compute-get-vm": SimulatedCallRate(bucket=24_000, refill=8000 / 60),
    "compute-list-vms": SimulatedCallRate(bucket=900, refill=300 / 60),
    "compute-polls": SimulatedCallRate(bucket=15_000, refill=5000 / 60),
    "compute-get-vm/*": SimulatedCallRate(bucket=36, refill=12 / 60),
    "compute-*-vm/*": SimulatedCallRate(bucket=12, refill=4 / 60),
    "compute-writes": SimulatedCallRate(bucket=200, refill=40 / 60),
    "compute-deletes": SimulatedCallRate(bucket=200, refill=40 / 60),
    "compute-reads": SimulatedCallRate(bucket=500, refill=500 / 60),
    "network-writes": SimulatedCallRate(bucket=200, refill=1000 / 300),
    "network-reads": SimulatedCallRate(bucket=500, refill=10_000 / 300),
    "graph": SimulatedCallRate(bucket=15, refill=15 / 5),
}
"""The rates of the subscription are the documented ones of Azure Resource Manager, and the rate of Resource
Graph that of one user."""
