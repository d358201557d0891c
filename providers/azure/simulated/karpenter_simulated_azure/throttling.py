"""Call rates that Azure grants, by bucket.

Those of virtual machines are the documented ones (Azure, compute throttling limits): for the subscription in
a region, and for each virtual machine (`compute-put-vm/NAME`). Those of network, and of what else compute
has, are unverified.
"""

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
    "compute-put-vm": CallRate(bucket=1500, refill=500 / 60),
    "compute-update-vm": CallRate(bucket=1500, refill=500 / 60),
    "compute-delete-vm": CallRate(bucket=1500, refill=500 / 60),
    "compute-get-vm": CallRate(bucket=24_000, refill=8000 / 60),
    "compute-list-vms": CallRate(bucket=900, refill=300 / 60),
    "compute-polls": CallRate(bucket=15_000, refill=5000 / 60),
    "compute-get-vm/*": CallRate(bucket=36, refill=12 / 60),
    "compute-*-vm/*": CallRate(bucket=12, refill=4 / 60),
    "compute-writes": CallRate(bucket=200, refill=40 / 60),
    "compute-deletes": CallRate(bucket=200, refill=40 / 60),
    "compute-reads": CallRate(bucket=500, refill=500 / 60),
    "network-writes": CallRate(bucket=200, refill=1000 / 300),
    "network-reads": CallRate(bucket=500, refill=10_000 / 300),
    "graph": CallRate(bucket=15, refill=15 / 5),
}
"""The rates of the subscription are the documented ones of Azure Resource Manager, and the rate of Resource
Graph that of one user."""
