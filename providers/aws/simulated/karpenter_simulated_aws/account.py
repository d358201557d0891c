"""The account of the simulated cloud: owner and resource ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from karpenter_core.provider.kit.simulated.cloud_time import utc_now
from karpenter_core.provider.kit.simulated.ids import IdGenerator

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

__all__ = ["Account"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account in a region."""

    id: str = "123456789012"
    region: str = "us-east-1"
    clock: Callable[[], datetime] = utc_now
    ids: IdGenerator = field(default_factory=lambda: IdGenerator("simulated"))

    @property
    def partition(self) -> str:
        """`aws`, `aws-cn` or `aws-us-gov`."""
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.id}:{resource}"

    def global_arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource without a region (IAM)."""
        return f"arn:{self.partition}:{service}::{self.id}:{resource}"
