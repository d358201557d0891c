"""Terminates instances in batches, and isolates those that a cloud refuses.

Clouds that terminate all instances of a call or none mostly name the instance that they refuse: the call
is repeated without it. Where no instance is named, the batch is halved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["BatchResult", "terminate_batch"]

Refusal = TypeVar("Refusal")

_WORD: Final = re.compile(r"[\w-]+")


@dataclass(slots=True, kw_only=True)
class BatchResult(Generic[Refusal]):
    """Results of a batch, by instance id."""

    started: list[str] = field(default_factory=list[str])
    """Instances that are being terminated."""
    refused: dict[str, Refusal] = field(default_factory=dict[str, Refusal])
    """Instances that were refused: named, or alone in their call."""
    failed: dict[str, CloudProviderError] = field(default_factory=dict[str, CloudProviderError])
    """Instances of calls that failed for another reason, and all that came after them."""
    deferred: dict[str, CloudProviderError] = field(default_factory=dict[str, CloudProviderError])
    """Instances that were not sent any more after too many refusals, with the last of these."""


def terminate_batch(
    instance_ids: Sequence[str],
    send: Callable[[Sequence[str]], None],
    *,
    read_refusal: Callable[[CloudProviderError], Refusal | None],
    message_of: Callable[[Refusal], str],
    max_refusals: int,
) -> BatchResult[Refusal]:
    """Terminate instances by as few calls as refusals allow.

    `send` raises CloudProviderError; `read_refusal` returns the refusal behind it if a call without
    some of the instances may succeed, and None if nothing was answered or everybody is refused; then
    nothing more is sent. Ids of the batch are searched in its message. After `max_refusals` refusals
    without a termination between them nothing more is sent either.
    """
    result: BatchResult[Refusal] = BatchResult()
    groups = [list(instance_ids)] if instance_ids else []
    refusals = 0
    while groups:
        group = groups.pop()
        try:
            send(group)
        except CloudProviderError as error:
            refusal = read_refusal(error)
            if refusal is None:
                result.failed |= dict.fromkeys(chain(group, *groups), error)
                return result
            refusals += 1
            culprits = group if len(group) == 1 else _named(group, message_of(refusal))
            result.refused |= dict.fromkeys(culprits, refusal)
            groups += _groups_without(group, culprits)
            if refusals == max_refusals:
                result.deferred |= dict.fromkeys(chain(*groups), error)
                return result
        else:
            refusals = 0
            result.started += group
    return result


def _named(group: Iterable[str], message: str) -> list[str]:
    """Return the ids that a message names; no id that only begins like a named one."""
    words = frozenset(_WORD.findall(message))
    return [name for name in group if name in words]


def _groups_without(group: list[str], culprits: list[str]) -> list[list[str]]:
    """Return the groups to send next: without the culprits, or by halves if none is known."""
    if culprits:
        rest = [name for name in group if name not in culprits]
        return [rest] if rest else []
    middle = len(group) // 2
    return [group[middle:], group[:middle]]
