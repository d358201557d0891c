"""How many calls Alibaba Cloud takes of an account, as far as it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALIBABA_CLOUD_RATES"]

ALIBABA_CLOUD_RATES: Final[Mapping[str, Rate]] = {
    "vpc:DescribeVSwitches": Rate(bucket=360, refill=6),
    "*": Rate(bucket=100, refill=100),
}
"""By pattern of service and action, first match: 360 calls a minute for vSwitches, 100 a second else."""
