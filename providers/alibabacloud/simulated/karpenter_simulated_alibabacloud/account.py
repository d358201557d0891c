"""The account of the simulated cloud: owner, clock and resource ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.cloud_time import utc_now
from karpenter_core.provider.kit.simulated.ids import IdGenerator

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

__all__ = ["Account", "region_ids", "to_minutes", "to_seconds"]

_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LETTERS: Final = 17  # after the mark of the region: i-bp1 and 17 letters or digits
_MARKS: Final = {"cn-hangzhou": "bp1", "cn-beijing": "2ze", "cn-shanghai": "uf6"}


def to_minutes(moment: datetime) -> str:
    """Write a time as ECS writes CreationTime: without seconds."""
    return f"{moment:%Y-%m-%dT%H:%MZ}"


def to_seconds(moment: datetime) -> str:
    """Write a time as most answers have it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def region_ids(region: str) -> IdGenerator:
    """Return ids that look like those of Alibaba Cloud: the mark of the region, then letters."""
    mark = _MARKS.get(region, "x01")

    def spell(prefix: str, digest: bytes) -> str:
        number = int.from_bytes(digest)
        letters: list[str] = []
        for _ in range(_ID_LETTERS):
            number, digit = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[digit])
        return f"{prefix}-{mark}{''.join(letters)}"

    return IdGenerator(region, spell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account in a region."""

    id: int = 1234567890123456
    region: str = "cn-hangzhou"
    clock: Callable[[], datetime] = utc_now
    ids: IdGenerator = field(default_factory=lambda: region_ids("cn-hangzhou"))
