"""Holds announcements of interruptions and of late failures of launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.interruptions import InterruptionKind

__all__ = ["Interruption"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """An announced interruption; acknowledged by `id` after it was handled.

    `deadline` is when the instance ends; None if the cloud gives no time. `detail` is
    for people, such as the state of the instance. `announced_at` is the time of the announcement.

    With `LAUNCH_FAILED` a provider announces that a launch failed after the cloud had accepted it.
    """

    id: str
    kind: InterruptionKind
    provider_id: str = ""
    """The instance; empty if the message names none."""
    token: str = ""
    """UID of the NodeClaim: it finds the claim if no claim has the instance yet, or none is named."""
    error: CloudProviderError | None = None
    """With `LAUNCH_FAILED`: the error that the launch would have returned, a shortage with its scope."""
    deadline: datetime | None = None
    detail: str = ""
    announced_at: datetime | None = None
