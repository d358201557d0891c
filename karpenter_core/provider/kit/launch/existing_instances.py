"""Finds instances launched for claims before, by this or another process."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, final

from karpenter_core.errors import BadInputError, CloudProviderError, LaunchFailedError
from karpenter_core.provider.kit.launch.cloud import Answer, Call, Described

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.launch.cloud import CloudTraits, LaunchCloud
    from karpenter_core.provider.kit.launch.instance_claims import InstanceClaims
    from karpenter_core.provider.kit.recent_launches import RecentLaunches

__all__ = ["ExistingInstances", "as_outcome"]

_NEW_CLAIM_AGE: Final = timedelta(seconds=30)
"""Only this process can have launched for a claim that is younger."""
_SEARCHES_ALL: Final = timedelta(minutes=5)
"""Time after its first listing for which a process searches for young claims, too: the process before it may have
launched for them. Longer than a claim's age and the difference of clocks, by which the age is wrong."""


@final
class ExistingInstances(Generic[Described, Call, Answer]):
    """The outcomes of claims for which something was launched before; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        cloud: LaunchCloud[Described, Call, Answer],
        *,
        claims: InstanceClaims[Described, Call],
        recent: RecentLaunches,
        traits: CloudTraits,
        has_attempted: Callable[[str], bool],
    ) -> None:
        """`has_attempted` is that of `CallExecutor`."""
        self._clock: Final = clock
        self._cloud: Final = cloud
        self._claims: Final = claims
        self._recent: Final = recent
        self._traits: Final = traits
        self._has_attempted: Final = has_attempted
        self._first_listed_at: float | None = None
        """By the monotonic clock."""
        self._lock: Final = Lock()
        self._short_calls: dict[Hashable, tuple[int, datetime]] = {}
        """By call: how many instances are shown of one that has more claims, and since when."""

    def outcomes(self, requests: Mapping[str, LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Return the outcomes of claims for which something was launched before, by token.

        Raises:
            CloudProviderError: the cloud could not be asked.
        """
        outcomes: dict[str, LaunchOutcome] = {}
        uncertain: dict[str, LaunchRequest] = {}
        for token, request in requests.items():
            ended = self._recent.ended_instance(token)
            if ended:
                outcomes[token] = _terminated_error([ended])
            elif self._traits.finds_claims:
                uncertain[token] = request
            elif (recent := self._certain_outcome(token)) is not None:
                outcomes[token] = recent
            elif self._may_have_instance(request):
                uncertain[token] = request
        return outcomes | self._listed_outcomes(uncertain) if uncertain else outcomes

    def _certain_outcome(self, token: str) -> LaunchOutcome | None:
        """Return what this process launched, while the cloud may not show it yet."""
        recent = self._recent.of_claim(token)
        if recent is None:
            return None
        launched_at = recent.instance.created
        is_certain = (
            launched_at is None or self._clock.now() - launched_at < self._traits.shown_within
        )
        return recent.outcome if is_certain else None

    def _may_have_instance(self, request: LaunchRequest) -> bool:
        """Whether something may have been launched for a claim, by another process or long ago."""
        token, since = request.token, self._first_listed_at
        if since is None or self._clock.monotonic() - since < _SEARCHES_ALL.total_seconds():
            return True
        if self._recent.of_claim(token) is not None or self._has_attempted(token):
            return True
        created = request.node_claim.metadata.creation_timestamp
        return created is None or not (
            timedelta(0) <= self._clock.now() - created <= _NEW_CLAIM_AGE
        )

    def _listed_outcomes(self, requests: Mapping[str, LaunchRequest]) -> dict[str, LaunchOutcome]:
        described = self._cloud.describe(tuple(requests))
        if self._first_listed_at is None:
            self._first_listed_at = self._clock.monotonic()
        owners = self._claims.owners(described)
        by_token: dict[str, list[Described]] = defaultdict(list)
        for instance in described:
            owner = owners.get(instance.id)
            if owner is not None and owner.uid in requests:
                by_token[owner.uid].append(instance)
        awaited = self._awaited_claims(described)
        outcomes: dict[str, LaunchOutcome] = {}
        for token, request in requests.items():
            recent = self._recent.of_claim(token)
            if token in by_token:
                outcomes[token] = self._described_outcome(request, by_token[token])
            elif recent is not None:
                outcomes[token] = self._certain_outcome(token) or _terminated_error(
                    [recent.instance_id]
                )
            elif token in awaited and not self._has_attempted(token):
                outcomes[token] = CloudProviderError(
                    "another process recently launched this NodeClaim and others, and "
                    f"{self._traits.name} does not show an instance for each of them yet"
                )
        return outcomes

    def _awaited_claims(self, described: Iterable[Described]) -> frozenset[str]:
        """Return the UIDs of claims for which another process's call may still bring instances.

        A call may while it shows fewer instances than it has claims, for `quiet_within` after it was
        first seen with that many.
        """
        now = self._clock.now()
        calls: dict[Hashable, list[Described]] = defaultdict(list)
        uids: dict[Hashable, frozenset[str]] = {}
        for instance in described:
            call, claims = self._claims.claims_of_call(instance)
            calls[call].append(instance)
            uids[call] = frozenset(claim.uid for claim in claims)
        with self._lock:
            before = self._short_calls
            not_listed = {
                call: short
                for call, short in before.items()
                if call not in calls and now - short[1] < self._traits.made_within
            }
            self._short_calls = not_listed | {
                call: before[call]
                if call in before and before[call][0] >= len(shown)
                else (len(shown), now)
                for call, shown in calls.items()
                if len(shown) < len(uids[call]) and any(self._is_recent(each) for each in shown)
            }
            return frozenset(
                uid
                for call, (_, since) in self._short_calls.items()
                if call in calls and now - since < self._traits.quiet_within
                for uid in uids[call]
            )

    def _is_recent(self, instance: Described) -> bool:
        """Whether an instance was launched of late; one without a known time was not."""
        at = instance.launched_at
        return at is not None and self._clock.now() - at < self._traits.made_within

    def _described_outcome(
        self, request: LaunchRequest, instances: Sequence[Described]
    ) -> LaunchOutcome:
        remaining = [instance for instance in instances if not instance.is_leaving]
        if not remaining:
            return _terminated_error(instance.id for instance in instances)
        try:
            return self._cloud.outcome_of_existing(request, remaining[0])
        except (CloudProviderError, BadInputError) as error:
            outcome = CloudProviderError(
                f"instance {remaining[0].id} exists and cannot be described: {error}"
            )
            outcome.__cause__ = error
            return outcome


def as_outcome(error: CloudProviderError | BadInputError, *, reason: str) -> CloudProviderError:
    """Return the outcome of claims that an error concerns.

    What is wrong with the text of a NodeClass is a launch failure with this reason: it waits for
    the user.
    """
    if isinstance(error, CloudProviderError):
        return error
    return LaunchFailedError(str(error), reason=reason)


def _terminated_error(instance_ids: Iterable[str]) -> LaunchFailedError:
    return LaunchFailedError(
        f"the instance of this NodeClaim was terminated: {', '.join(instance_ids)}",
        reason="InstanceTerminated",
    )
