"""Keeps what is slow to fetch (a catalogue, prices) over restarts of the process.

A start must neither wait for megabytes from a cloud nor fail because it is down. What lies on disk
is a convenience: when it is missing, old, of another version, or damaged, it is as if there were
nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.api.json_objects import JsonObject

__all__ = ["DiskCache"]


@final
class DiskCache:
    """One value in one file of `context.cache_folder`; callable from any thread.

    Plug-ins share that folder, so a `name` begins with the provider's (`mycloud-prices-north`).
    Values are JSON. `version` goes up when their shape changes: what another version wrote is not
    read.
    """

    def __init__(self, folder: Path, name: str, *, version: str) -> None:
        self._path: Final = folder / f"{name}.json"
        self._version: Final = version

    def read(self, *, now: datetime, max_age: timedelta) -> object:
        """Return the value if it is no older than that, else None."""
        try:
            document: JsonObject = json.loads(self._path.read_text(encoding="utf-8"))
            written = datetime.fromisoformat(document["written"])
            is_fresh = now - written <= max_age
            if document["version"] != self._version or not is_fresh:
                return None
            return document["value"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, value: object, *, now: datetime) -> None:
        """Replace the value; a reader sees the old one or the new one, never half of it.

        A disk that is full or read-only is not worth failing for: then nothing is kept.
        """
        document = {"version": self._version, "written": now.isoformat(), "value": value}
        text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                Path(temporary).replace(self._path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
