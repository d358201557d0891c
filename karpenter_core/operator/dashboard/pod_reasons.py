"""Remembers why the last pass did not place a pod, from Events about pods."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.notices import Notice

__all__ = ["PodReasons"]

REMEMBERED: Final = 10_000
_FAILED: Final = "FailedScheduling"
_NOMINATED: Final = "Nominated"
_PREFIX: Final = "Failed to schedule pod, "


@final
class PodReasons:
    """The last message about each pod that no pass has placed."""

    def __init__(self) -> None:
        self._messages: OrderedDict[str, str] = OrderedDict()
        self.changes = 0
        """Number of changes so far."""

    def observe(self, notice: Notice) -> None:
        """Remember or forget what an Event says about a pod."""
        about = notice.regarding
        if about.kind != "Pod":
            return
        if notice.reason == _FAILED:
            message = notice.message.removeprefix(_PREFIX)
            if self._messages.get(about.uid) != message:
                self._messages[about.uid] = message
                self._messages.move_to_end(about.uid)
                self.changes += 1
            if len(self._messages) > REMEMBERED:
                self._messages.popitem(last=False)
        elif notice.reason == _NOMINATED and self._messages.pop(about.uid, None) is not None:
            self.changes += 1

    def messages(self) -> Mapping[str, str]:
        """Return a copy of the messages, by UID."""
        return dict(self._messages)
