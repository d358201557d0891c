"""The kwok provider's simulated cloud, as the end-to-end tests see it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, final

from karpenter_core.testing.expectations import CloudAccount
from karpenter_provider_kwok.dump import dump_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@final
class KwokCloud:
    """Keeps the cloud's state in the test's folder and reads it as the provider's command does."""

    def options(self, folder: Path) -> Mapping[str, str]:
        """Name the state file and the file of faults, which need not be there."""
        return {
            "kwok-state-file": str(self._state(folder)),
            "kwok-faults-file": str(self._faults(folder)),
        }

    async def account(self, folder: Path) -> CloudAccount:
        """Read what there is and what was launched, and how often."""
        if not self._state(folder).exists():
            return CloudAccount()
        result = await self.dump(folder)
        return CloudAccount(instances=result["instances"], launches=result["launches"])

    async def dump(self, folder: Path) -> dict[str, Any]:
        """Return what `python -m karpenter_provider_kwok dump` prints, without a process.

        While something is to hold this is read at every change, and a process costs more than
        the rest of the test.
        """
        return await asyncio.to_thread(dump_file, str(self._state(folder)), now=datetime.now(UTC))

    def suffer(self, folder: Path, faults: Sequence[dict[str, Any]]) -> None:
        """Write the file of faults; the provider reads it again."""
        self._faults(folder).write_text(json.dumps(list(faults)))

    def _faults(self, folder: Path) -> Path:
        return folder / "faults.json"

    def _state(self, folder: Path) -> Path:
        return folder / "cloud.sqlite3"
