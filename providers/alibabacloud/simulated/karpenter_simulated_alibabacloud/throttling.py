"""Call rates that Alibaba Cloud grants an account, where known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALIBABA_CLOUD_RATES"]

ALIBABA_CLOUD_RATES: Final[Mapping[str, SimulatedCallRate]] = {
    "vpc:DescribeVSwitches": SimulatedCallRate(bucket=360, refill=6),
    "*": SimulatedCallRate(bucket=100, refill=100),
}
"""By pattern of service and action, first match: 360 calls a minute for vSwitches, 100 a second else."""
