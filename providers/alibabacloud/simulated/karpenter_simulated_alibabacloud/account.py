"""The account of the simulated cloud: owner, clock and resource ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.cloud_time import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

__all__ = ["Account", "IdGenerator", "to_minutes", "to_seconds"]

_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LETTERS: Final = 17  # after the mark of the region: i-bp1 and 17 letters or digits
_MARKS: Final = {"cn-hangzhou": "bp1", "cn-beijing": "2ze", "cn-shanghai": "uf6"}


def to_minutes(moment: datetime) -> str:
    """Write a time as ECS writes CreationTime: without seconds."""
    return f"{moment:%Y-%m-%dT%H:%MZ}"


def to_seconds(moment: datetime) -> str:
    """Write a time as most answers have it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


@final
class IdGenerator:
    """Ids that look like those of Alibaba Cloud and are the same in every run."""

    def __init__(self, region: str) -> None:
        self._region: Final = region
        self._mark: Final = _MARKS.get(region, "x01")
        self._lock: Final = Lock()
        self._given = 0

    def new(self, prefix: str) -> str:
        """Return an id that was not given out before: `new("i")` is `i-bp1…`."""
        with self._lock:
            self._given += 1
            given = self._given
        return self.named(prefix, str(given))

    def named(self, prefix: str, name: str) -> str:
        """Return the id that belongs to a name, the same each time."""
        number = int.from_bytes(sha256(f"{self._region}/{prefix}/{name}".encode()).digest())
        letters: list[str] = []
        for _ in range(_ID_LETTERS):
            number, digit = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[digit])
        return f"{prefix}-{self._mark}{''.join(letters)}"

    def request_id(self) -> str:
        """Return the id of a request: a UUID in upper case."""
        digits = sha256(self.new("request").encode()).hexdigest().upper()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-A{digits[17:20]}-{digits[20:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account in a region."""

    id: int = 1234567890123456
    region: str = "cn-hangzhou"
    clock: Callable[[], datetime] = utc_now
    ids: IdGenerator = field(default_factory=lambda: IdGenerator("cn-hangzhou"))
