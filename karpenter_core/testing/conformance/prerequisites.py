"""Finds mistakes that break most rules at once, each with its rule.

A plug-in that does not load breaks every rule, and a report with sixty broken rules does not show
the cause. So a rule that fails for one of these reasons is reported as not shown, with the number
of the rule to correct first; only that rule is reported as broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.host.manager import load_plugins

if TYPE_CHECKING:
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

__all__ = [
    "LAUNCH",
    "LIST",
    "LOAD",
    "RESOLVE",
    "START",
    "BrokenPrerequisite",
    "LaunchRefusedError",
    "broken_launch",
    "broken_prerequisite",
    "rule_of_refusal",
    "skip_unless_loaded",
]

LOAD: Final = "PC-004"
START: Final = "PC-002"
RESOLVE: Final = "PC-010"
LAUNCH: Final = "PC-030"
LIST: Final = "PC-040"


class BrokenPrerequisite(NamedTuple):
    """The reason why a rule cannot be shown, and the number of the broken rule."""

    rule: str
    why: str


class LaunchRefusedError(AssertionError):
    """A launch without any fault returned no instance."""


def skip_unless_loaded(subject: ConformanceSubject) -> None:
    """Skip the rule when the plug-in does not load."""
    try:
        load_plugins(extra={subject.name: subject.make()}, entry_points=())
    except Exception as error:
        pytest.skip(f"not shown: the plug-in does not load: {error} ({LOAD})")


def rule_of_refusal(message: str) -> str:
    """Return the rule for the value because of which the core refuses a catalogue."""
    if ZONE in message or CAPACITY_TYPE in message:
        return "PC-022"
    if ": price" in message:
        return "PC-023"
    if ": capacity" in message or ": overhead" in message:
        return "PC-028"
    return "PC-020"


async def broken_prerequisite(
    world: ProviderWorld,
    subject: ConformanceSubject,
    error: CloudProviderError | LaunchRefusedError,
) -> BrokenPrerequisite | None:
    """Return the common cause of an error; None if the error belongs to the tested rule.

    All simulated faults of the rule have ended before this is called.
    """
    if isinstance(error, LaunchRefusedError):
        return await broken_launch(world, subject)
    try:
        await world.resolved(subject.node_class)
    except CloudProviderError as again:
        is_shared = str(again) == str(error)
        return (
            BrokenPrerequisite(RESOLVE, f"the NodeClass is not resolved: {error}")
            if is_shared
            else None
        )
    try:
        await world.catalogue(subject.node_class)
    except CloudProviderError as again:
        if str(again) == str(error):
            rule = rule_of_refusal(str(error))
            return BrokenPrerequisite(rule, f"the catalogue is refused: {error}")
    try:
        await world.providers.list_instances(subject.name)
    except CloudProviderError as again:
        if str(again) == str(error):
            return BrokenPrerequisite(LIST, f"instances cannot be listed: {error}")
    return None


async def broken_launch(
    world: ProviderWorld, subject: ConformanceSubject
) -> BrokenPrerequisite | None:
    """Return why nothing can be launched; None if another launch succeeds.

    A provider that keeps to the pause of a simulated 429 can launch afterwards.
    """
    outcome = await world.launch(await world.request("probe", subject.node_class))
    if isinstance(outcome, LaunchedInstance | ThrottledError):
        return None
    return BrokenPrerequisite(LAUNCH, f"nothing can be launched: {outcome}")
