"""Keeps data that is slow to fetch (catalogue, prices) across restarts.

A process must start without waiting for megabytes from a cloud, and while the cloud is down. The
cache is optional: a file that is missing, too old, of another version or damaged is ignored.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.files import replace_file

if TYPE_CHECKING:
    from datetime import timedelta

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonObject

__all__ = ["DiskCache"]


@final
class DiskCache:
    """One value in one file of `context.cache_folder`; callable from any thread.

    Plug-ins share that folder, so start the `name` with the provider's name (`mycloud-prices-north`).
    Values are JSON. Raise `version` when their format changes: values of other versions are ignored.
    """

    def __init__(self, folder: Path, name: str, *, version: str) -> None:
        self._path: Final = folder / f"{name}.json"
        self._version: Final = version
        self._is_broken = False
        self._log: FilteringBoundLogger = structlog.get_logger("cache")

    def read(self, *, now: datetime, max_age: timedelta) -> object:
        """Return the value if it is not older than this, else None.

        Nor may it be dated further in the future, as by a clock that was wrong: it would never be too
        old.
        """
        try:
            document: JsonObject = json.loads(self._path.read_text(encoding="utf-8"))
            written = datetime.fromisoformat(document["written"])
            is_fresh = abs(now - written) <= max_age
            if document["version"] != self._version or not is_fresh:
                return None
            return document["value"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def write(self, value: object, *, now: datetime) -> None:
        """Replace the value atomically; a disk that is full or read-only is logged once."""
        document = {"version": self._version, "written": now.isoformat(), "value": value}
        text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, text.encode())
        except OSError as error:
            if not self._is_broken:
                self._is_broken = True
                self._log.warning(
                    "a cache cannot be written",
                    file=str(self._path),
                    error=error.strerror or str(error),
                )
        else:
            if self._is_broken:
                self._is_broken = False
                self._log.info("a cache is written again", file=str(self._path))
