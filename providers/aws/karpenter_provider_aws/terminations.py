"""Terminates instances in batches, and isolates the instances that EC2 refuses to terminate.

TerminateInstances refuses a whole call because of one instance: one that has termination protection,
whose tags were changed so that no policy permits the call, or that EC2 does not know. EC2 mostly
names the instance: the others are asked for again without it. Where no instance is named, halves of
the batch are asked for. Instances that were refused are remembered and asked for one by one, so
that later batches are not refused because of them.
"""

from __future__ import annotations

import re
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import AuthError, CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import Termination
from karpenter_provider_aws.codes import is_not_found, is_permission_missing, said_by
from karpenter_provider_aws.discovery.calls import calling, failure_behind, is_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_provider_aws.codes import Failure
    from karpenter_provider_aws.sdk import Clients

__all__ = ["Terminations"]

_ACTION: Final = "ec2:TerminateInstances"
_AT_ONCE: Final = 500
"""Instances terminated by one call (section 17)."""
_REFUSALS: Final = 16
"""Refused calls that one batch may cost: enough to find one of 500 instances by halving."""
_INSTANCE_ID: Final = re.compile(r"\bi-[0-9a-z]+")


@final
class Terminations:
    """Terminates instances by id; callable from any thread."""

    def __init__(self, clients: Clients, *, observe_batch: Callable[[str, int], None]) -> None:
        self._clients: Final = clients
        self._observe_batch: Final = observe_batch
        self._lock: Final = Lock()
        self._refused: dict[str, CloudProviderError] = {}
        """Errors of the instances that were refused, the one that was asked for last at the end."""

    def start(self, names: Iterable[str]) -> dict[str, TerminateOutcome]:
        """Ask EC2 to terminate instances; return an outcome for each, by id.

        An instance that EC2 does not know is gone, or not shown yet: which of the two is seen when
        it is described again, so its termination counts as started.
        """
        wanted = set(names)
        with self._lock:
            suspects = [name for name in self._refused if name in wanted]
        others = sorted(wanted.difference(suspects))
        outcomes: dict[str, TerminateOutcome] = {}
        for first in range(0, len(others), _AT_ONCE):
            outcomes |= self._batch(others[first : first + _AT_ONCE])
        for name in suspects[:_REFUSALS]:
            outcomes |= self._batch([name])
        with self._lock:
            unasked = {
                name: self._refused.get(name, _not_asked_yet(name)) for name in suspects[_REFUSALS:]
            }
        return outcomes | unasked

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the refusals of instances that are gone; `names` are the ids of all others."""
        with self._lock:
            self._refused = {n: error for n, error in self._refused.items() if n in names}

    def _batch(self, names: Sequence[str]) -> dict[str, TerminateOutcome]:
        outcomes: dict[str, TerminateOutcome] = {}
        groups = [list(names)]
        refusals = 0
        while groups:
            group = groups.pop()
            try:
                self._terminate(group)
            except CloudProviderError as error:
                failure = failure_behind(error)
                if failure is None or not _is_about_instances(error, failure):
                    return outcomes | dict.fromkeys(chain(group, *groups), error)
                refusals += 1
                culprits, rests = _isolated(group, failure)
                for name in culprits:
                    outcomes[name] = self._noted(name, failure)
                groups += rests
                if refusals == _REFUSALS:
                    return outcomes | {name: _not_asked_yet(name) for name in chain(*groups)}
            else:
                outcomes |= dict.fromkeys(group, Termination.STARTED)
                self._forget(group)
        return outcomes

    def _terminate(self, names: Sequence[str]) -> None:
        self._observe_batch("terminate_instances", len(names))
        with calling(_ACTION):
            self._clients.ec2.terminate_instances(InstanceIds=names)

    def _noted(self, name: str, failure: Failure) -> TerminateOutcome:
        """Return the outcome of an instance that was refused, and remember that it was."""
        if is_not_found(failure.code):
            self._forget([name])
            return Termination.STARTED
        error = _refused(name, failure)
        with self._lock:
            self._refused.pop(name, None)
            self._refused[name] = error
        return error

    def _forget(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._refused.pop(name, None)


def _is_about_instances(error: CloudProviderError, failure: Failure) -> bool:
    """Whether a call without some of its instances may succeed.

    It may not where the credentials themselves are refused, or nothing was answered.
    """
    if isinstance(error, AuthError):
        return is_permission_missing(failure.code)
    return is_refusal(error)


def _isolated(group: list[str], failure: Failure) -> tuple[list[str], list[list[str]]]:
    """Return the instances that a refusal is about, and the groups to ask for without them."""
    named = set(_INSTANCE_ID.findall(failure.message))
    culprits = group if len(group) == 1 else [name for name in group if name in named]
    if culprits:
        rest = [name for name in group if name not in culprits]
        return culprits, [rest] if rest else []
    middle = len(group) // 2
    return [], [group[middle:], group[:middle]]


def _refused(name: str, failure: Failure) -> TerminationRefusedError:
    advice = (
        "permit it, and check that it still has the tags that the policy goes by: "
        if is_permission_missing(failure.code)
        else ""
    )
    said = f"{_ACTION}: {said_by(failure.code, failure.message)}"
    return TerminationRefusedError(f"instance {name} may not be terminated: {advice}{said}")


def _not_asked_yet(name: str) -> CloudProviderError:
    return CloudProviderError(
        f"{_ACTION}: instance {name} waits for the next attempt: too many instances of its batch may "
        "not be terminated"
    )
