"""Calls the interruption hooks; drops invalid values from announcements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.host import hooks
from karpenter_core.provider.host.answer_check import check_interruption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import Interruption
    from karpenter_core.provider.host.dispatch import Dispatcher
    from karpenter_core.provider.host.reported_problems import ReportedProblems

__all__ = ["InterruptionCalls"]

_KIND: Final = "Interruption"


@final
class InterruptionCalls:
    """The interruptions of all providers."""

    def __init__(self, dispatcher: Dispatcher, problems: ReportedProblems) -> None:
        self._dispatcher: Final = dispatcher
        self._problems: Final = problems

    def are_polled(self, provider: str) -> bool:
        """Return whether a provider implements the polling of interruptions."""
        return self._dispatcher.implements(hooks.POLL_INTERRUPTIONS, provider)

    def are_read(self, provider: str) -> bool:
        """Return whether a provider reads interruptions from Nodes."""
        return self._dispatcher.implements(hooks.READ_INTERRUPTIONS, provider)

    async def poll(self, provider: str) -> tuple[Interruption, ...]:
        """Fetch the interruptions of a provider that are not acknowledged."""
        if not self.are_polled(provider):
            return ()
        messages = await self._dispatcher.call(
            hooks.POLL_INTERRUPTIONS, provider, hooks.NoArguments()
        )
        return self._checked(provider, messages or ())

    async def acknowledge(self, provider: str, ids: Sequence[str]) -> None:
        """Acknowledge interruptions.

        Raises:
            FencedError: this process does not lead; nothing was called.
        """
        hook = hooks.ACKNOWLEDGE_INTERRUPTIONS
        if ids and self._dispatcher.implements(hook, provider):
            await self._dispatcher.call(
                hook, provider, hooks.InterruptionIdArguments(ids=tuple(ids)), key=tuple(ids)
            )

    async def read(self, provider: str, node: NodeView) -> tuple[Interruption, ...]:
        """Read interruptions from a Node; runs inline, since the hook does no I/O."""
        if not self.are_read(provider):
            return ()
        messages = await self._dispatcher.ask(
            hooks.READ_INTERRUPTIONS, provider, hooks.NodeArguments(node=node), inline=True
        )
        return self._checked(provider, messages or ())

    def invalid(self, provider: str) -> tuple[str, ...]:
        """Return what was logged about invalid values in a provider's interruptions."""
        return self._problems.messages(provider, _KIND)

    def _checked(
        self, provider: str, messages: tuple[Interruption, ...]
    ) -> tuple[Interruption, ...]:
        """Return announcements without invalid values; each of these is logged once."""
        checked: list[Interruption] = []
        for message in messages:
            valid, problems = check_interruption(message)
            checked.append(valid)
            for problem in problems:
                self._problems.report(
                    "plug-in announces an invalid value, it is ignored", provider, _KIND, problem
                )
        return tuple(checked)
