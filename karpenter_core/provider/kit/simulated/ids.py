"""Creates ids of resources that are the same in every run."""

from __future__ import annotations

from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IdGenerator"]

_DIGITS: Final = 17


def _hexadecimal(prefix: str, digest: bytes) -> str:
    return f"{prefix}-{digest.hex()[:_DIGITS]}"


class IdGenerator:
    """Ids that look like those of a cloud; a counter makes each new one different."""

    def __init__(self, seed: str, spell: Callable[[str, bytes], str] = _hexadecimal) -> None:
        """Create ids from a seed; `spell` writes an id from its prefix and a SHA-256 digest."""
        self._seed: Final = seed
        self._spell: Final = spell
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
        return self._spell(prefix, sha256(f"{self._seed}/{prefix}/{name}".encode()).digest())

    def uuid(self) -> str:
        """Return a new id in the form of a UUID."""
        digits = sha256(self.new("uuid").encode()).hexdigest()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"
