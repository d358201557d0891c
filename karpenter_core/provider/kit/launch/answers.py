"""Reads launch answers: instances, failed targets, and the error of the rest.

Pure functions of values. A target is one choice that a call may take: a type in a zone and subnet.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from karpenter_core.errors import OfferingKey, QuotaGroup

__all__ = [
    "CallAnswer",
    "FailedTarget",
    "NewInstance",
    "merge_shortages",
    "unserved_error",
]

_WIDEST_FIRST: Final = (
    ExhaustedScope.REGION,
    ExhaustedScope.ZONE,
    ExhaustedScope.FAMILY_QUOTA,
    ExhaustedScope.PLACEMENT,
    ExhaustedScope.OFFERING,
    ExhaustedScope.NODE_CLASS,
)

Target = TypeVar("Target")


class FailedTarget(Protocol):
    """A target that a call could not have, and the reason."""

    @property
    def is_shortage(self) -> bool:
        """Whether it is a lack of capacity rather than a mistake."""
        ...

    @property
    def is_throttled(self) -> bool:
        """Whether there were too many calls."""
        ...

    @property
    def scope(self) -> ExhaustedScope:
        """Scope of a lack of capacity."""
        ...

    @property
    def reason(self) -> str:
        """The reason for metrics and conditions."""
        ...

    @property
    def text(self) -> str:
        """Message of the cloud."""
        ...


Failure = TypeVar("Failure", bound=FailedTarget)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstance(Generic[Target]):
    """A launched instance, and its target."""

    id: str
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer(Generic[Target, Failure]):
    """The new instances and the failures of a call; both in the order of the answer."""

    instances: tuple[NewInstance[Target], ...] = ()
    failures: tuple[Failure, ...] = ()
    reference: str = ""
    """The id by which the cloud finds the call again."""

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """Ids of the instances."""
        return tuple(item.id for item in self.instances)

    def target_of(self, instance_id: str) -> Target:
        """Return the target of a new instance."""
        return next(item.target for item in self.instances if item.id == instance_id)

    def count_by(self, key: Callable[[Target], str]) -> dict[str, int]:
        """Count the instances by a property of their targets: the id of the subnet, say."""
        return dict(Counter(key(item.target) for item in self.instances))


def unserved_error(
    failures: Sequence[Failure],
    *,
    service: str,
    launched: int,
    targets: Callable[[], Iterable[OfferingKey]],
    exhausted: Callable[[Sequence[Failure]], Iterable[OfferingKey]],
    quota_groups: Callable[[Sequence[Failure]], Iterable[QuotaGroup]] = lambda _failures: (),
    references: str = "",
) -> CloudProviderError:
    """Return the outcome of claims that calls brought no instance.

    It is a lack of capacity when every failure is one, or when nothing was launched and the cloud
    gave no reason. `targets` returns all that was asked for, `exhausted` what shortages are about,
    `quota_groups` what used-up quotas cover besides; `references` name the requests in the cloud's records.
    """
    if not failures:
        if launched:
            return CloudProviderError(
                f"{service} launched fewer instances than were asked for, and gives no reason"
                f"{references}"
            )
        return InsufficientCapacityError(
            f"{service} launched nothing, and gives no reason{references}",
            offerings=tuple(dict.fromkeys(targets())),
        )
    text = f"{'; '.join(dict.fromkeys(failure.text for failure in failures))}{references}"
    mistakes = [failure for failure in failures if not failure.is_shortage]
    if not mistakes:
        # Full subnets are of this NodeClass alone, and its next launch finds them recorded.
        wider = [each for each in failures if each.scope is not ExhaustedScope.NODE_CLASS]
        shortages = wider or failures
        return InsufficientCapacityError(
            text,
            offerings=tuple(dict.fromkeys(exhausted(shortages))),
            scope=_widest(failure.scope for failure in shortages),
            quota_groups=tuple(dict.fromkeys(quota_groups(shortages))),
        )
    first = next((failure for failure in mistakes if not failure.is_throttled), None)
    if first is None:
        return ThrottledError(text)
    return LaunchFailedError(text, reason=first.reason)


def merge_shortages(before: CloudProviderError, after: CloudProviderError) -> CloudProviderError:
    """Return the outcome of two calls that brought nothing; of two shortages, both of them.

    Full subnets are of one NodeClass, and left out where the other shortage is wider.
    """
    if not (
        isinstance(before, InsufficientCapacityError)
        and isinstance(after, InsufficientCapacityError)
    ):
        return after
    both = before, after
    wider = [each for each in both if each.scope is not ExhaustedScope.NODE_CLASS] or both
    return InsufficientCapacityError(
        "; ".join(dict.fromkeys((str(before), str(after)))),
        offerings=tuple(dict.fromkeys(key for each in wider for key in each.offerings)),
        scope=_widest(each.scope for each in wider),
        quota_groups=tuple(dict.fromkeys(group for each in wider for group in each.quota_groups)),
    )


def _widest(scopes: Iterable[ExhaustedScope]) -> ExhaustedScope:
    present = frozenset(scopes)
    return next(scope for scope in _WIDEST_FIRST if scope in present)
