"""The account of the simulated cloud: owner and resource ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.cloud_time import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

__all__ = ["Account", "IdGenerator"]

_ID_DIGITS: Final = 17  # of ids of EC2 since 2016


@final
class IdGenerator:
    """Ids that look like those of EC2 and are the same in every run."""

    def __init__(self, seed: str) -> None:
        self._seed: Final = seed
        self._lock: Final = Lock()
        self._given = 0

    def new(self, prefix: str) -> str:
        """Return an id that was not given out before: `new("i")` is `i-` and 17 digits."""
        with self._lock:
            self._given += 1
            given = self._given
        return self.named(prefix, str(given))

    def named(self, prefix: str, name: str) -> str:
        """Return the id that belongs to a name, the same each time."""
        digits = sha256(f"{self._seed}/{prefix}/{name}".encode()).hexdigest()[:_ID_DIGITS]
        return f"{prefix}-{digits}"

    def uuid(self) -> str:
        """Return a new id in the form of a UUID."""
        digits = sha256(self.new("uuid").encode()).hexdigest()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


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
