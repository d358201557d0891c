"""Terminates instances in batches, and isolates those that EC2 refuses.

TerminateInstances refuses a whole call because of one instance: one with termination protection,
one whose tags were changed so that no policy permits the call, or one that EC2 does not know. EC2
mostly names the instance: the call is repeated without it. Where no instance is named, the batch is
halved. Refused instances are remembered and get calls of their own, so that later batches are not
refused because of them.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import AuthError, CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.termination_batches import terminate_batch
from karpenter_provider_aws.codes import error_text, is_not_found, is_permission_missing
from karpenter_provider_aws.discovery.call_errors import core_errors_of, is_refusal, refusal_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_provider_aws.codes import ApiFailure
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["InstanceTerminator"]

_ACTION: Final = "ec2:TerminateInstances"
_AT_ONCE: Final = 500
"""Instances terminated by one call (section 17)."""
_REFUSALS: Final = 16
"""Refused calls without a termination between them, after which nothing more of a batch is sent: enough to
find one of 500 instances by halving."""


@final
class InstanceTerminator:
    """Terminates instances by id; callable from any thread."""

    def __init__(self, clients: CloudClients, *, observe_batch: Callable[[str, int], None]) -> None:
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
        instance_ids = set(names)
        with self._lock:
            suspects = [name for name in self._refused if name in instance_ids]
        others = sorted(instance_ids.difference(suspects))
        outcomes: dict[str, TerminateOutcome] = {}
        for first in range(0, len(others), _AT_ONCE):
            outcomes |= self._batch(others[first : first + _AT_ONCE])
        for name in suspects[:_REFUSALS]:
            outcomes |= self._batch([name])
        with self._lock:
            unasked = {
                name: self._refused.get(name, _deferred_error(name))
                for name in suspects[_REFUSALS:]
            }
        return outcomes | unasked

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the refusals of instances that are gone; `names` are the ids of all others."""
        with self._lock:
            self._refused = {n: error for n, error in self._refused.items() if n in names}

    def _batch(self, names: Sequence[str]) -> dict[str, TerminateOutcome]:
        result = terminate_batch(
            names,
            self._terminate,
            read_refusal=_refusal_of_instances,
            message_of=lambda failure: failure.message,
            max_refusals=_REFUSALS,
        )
        self._forget(result.started)
        return {
            **dict.fromkeys(result.started, TerminationStatus.STARTED),
            **{n: self._record_refusal(n, failure) for n, failure in result.refused.items()},
            **result.failed,
            **{name: _deferred_error(name) for name in result.deferred},
        }

    def _terminate(self, names: Sequence[str]) -> None:
        self._observe_batch("terminate_instances", len(names))
        with core_errors_of(_ACTION):
            self._clients.ec2.terminate_instances(InstanceIds=names)

    def _record_refusal(self, name: str, failure: ApiFailure) -> TerminateOutcome:
        """Return the outcome of an instance that was refused, and remember that it was."""
        if is_not_found(failure.code):
            self._forget([name])
            return TerminationStatus.STARTED
        error = _refused_error(name, failure)
        with self._lock:
            self._refused.pop(name, None)
            self._refused[name] = error
        return error

    def _forget(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._refused.pop(name, None)


def _refusal_of_instances(error: CloudProviderError) -> ApiFailure | None:
    """Return the refusal of a call that may succeed without some of its instances.

    It may not where the credentials themselves are refused, or nothing was answered.
    """
    failure = refusal_behind(error)
    if failure is None:
        return None
    about_instances = (
        is_permission_missing(failure.code) if isinstance(error, AuthError) else is_refusal(error)
    )
    return failure if about_instances else None


def _refused_error(name: str, failure: ApiFailure) -> TerminationRefusedError:
    advice = (
        "permit it, and check that it still has the tags that the policy requires: "
        if is_permission_missing(failure.code)
        else ""
    )
    said = f"{_ACTION}: {error_text(failure.code, failure.message)}"
    return TerminationRefusedError(f"instance {name} cannot be terminated: {advice}{said}")


def _deferred_error(name: str) -> CloudProviderError:
    return CloudProviderError(
        f"{_ACTION}: instance {name} waits for the next attempt: too many instances of its batch may "
        "not be terminated"
    )
