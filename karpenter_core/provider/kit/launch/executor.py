"""Sends launch calls, assigns instances to claims, keeps unanswered calls.

A call without an answer may have been carried out. It is remembered, and repeated word for word when
one of its claims comes back: the cloud answers the same token with the same instances. A refusal of a
repetition that does not depend on the token (throttling, a permission) says nothing about it. In a
cloud without tokens the call is not repeated, but its instances are looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, final

import structlog

from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
)
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.launch.cloud import (
    Answer,
    AnsweredCall,
    Call,
    CallFailure,
    Described,
    FailureKind,
)
from karpenter_core.provider.kit.launch.existing_instances import as_outcome
from karpenter_core.provider.kit.recent_launches import (
    VISIBLE_WITHIN,
    RecentLaunch,
    UnansweredCalls,
)
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.launch.cloud import (
        CloudTraits,
        LaunchCall,
        LaunchCloud,
        LaunchJob,
    )
    from karpenter_core.provider.kit.launch.instance_claims import InstanceClaims
    from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunches

__all__ = ["CallExecutor", "OpenCall"]


@final
@dataclass(slots=True, kw_only=True, eq=False)
class OpenCall(Generic[Call]):
    """A call whose last attempt had no answer."""

    call: Call
    attempted_at: float
    """Time at which the last attempt without an answer ended, by the monotonic clock."""
    lock: Lock = field(default_factory=Lock)
    """Held while it is repeated: two answers would be counted twice."""


@final
class CallExecutor(Generic[Described, Call, Answer]):
    """Sends launch calls; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        cloud: LaunchCloud[Described, Call, Answer],
        *,
        claims: InstanceClaims[Described, Call],
        recent: RecentLaunches,
        traits: CloudTraits,
    ) -> None:
        self._clock: Final = clock
        self._cloud: Final = cloud
        self._traits: Final = traits
        self._claims: Final = claims
        self._recent: Final = recent
        self._unanswered: Final[UnansweredCalls[OpenCall[Call]]] = UnansweredCalls(
            clock, kept=max(VISIBLE_WITHIN, traits.shown_within)
        )
        self._launched_elsewhere: Final[TtlCache[str, CloudProviderError]] = TtlCache(
            clock, traits.shown_within
        )
        self._calls_elsewhere: Final[TtlCache[str, bool]] = TtlCache(clock, traits.made_within)
        """Claims for which another process's call may still make instances."""
        self._log: FilteringBoundLogger = structlog.get_logger(traits.log_name)

    def has_attempted(self, token: str) -> bool:
        """Whether a call of this process alone can have launched for a claim of late.

        Its call had no answer, or an answer without an instance for the claim.
        """
        return self._unanswered.has_attempted(token) and self._calls_elsewhere.get(token) is None

    def wait_reason(self, token: str) -> CloudProviderError | None:
        """Return why a claim must wait: another process may have launched for it just now."""
        return self._launched_elsewhere.get(token)

    def unanswered_calls(self, tokens: Iterable[str]) -> list[OpenCall[Call]]:
        """Return the calls for these claims that had no answer, each once."""
        calls = (self._unanswered.call_for(token) for token in tokens)
        return list({id(call): call for call in calls if call is not None}.values())

    def repeat(self, open_call: OpenCall[Call], *, listed_at: float) -> dict[str, LaunchOutcome]:
        """Make a call again that had no answer; return the outcomes of its claims by token.

        `listed_at` is when the existing instances of these claims were read, by the monotonic clock.
        """
        call = open_call.call
        outcomes: dict[str, LaunchOutcome] = {}
        with open_call.lock:
            if not self._unanswered.is_unanswered(call.requests, open_call):
                return self._answered_meanwhile(call)
            try:
                known = self._claims.known_owners()
                result = self._send(call, open_call, listed_at=listed_at)
                if isinstance(result, CallFailure):
                    return dict.fromkeys(call.requests, result.error)
                self._settle(result, outcomes, known)
                missing = [token for token in call.requests if token not in outcomes]
                if missing:
                    outcomes |= dict.fromkeys(missing, self._unserved_error([result]))
            except Exception as error:
                self._add_unexpected(error, call.requests, outcomes)
        return outcomes

    def look_up(
        self,
        open_call: OpenCall[Call],
        found: Mapping[str, LaunchOutcome],
        *,
        listed_at: float,
    ) -> dict[str, LaunchOutcome]:
        """Decide by a listing about a call that had no answer and must not be repeated.

        `found` are the outcomes of claims by that listing, which was read at `listed_at`. Claims whose
        instance the listing may not show yet get an error that makes them wait. If it would show
        their instances and does not, the call was not carried out: they are launched anew.
        """
        call = open_call.call
        with open_call.lock:
            missing = [token for token in call.requests if not _has_instance(found.get(token))]
            if not self._unanswered.is_unanswered(call.requests, open_call):
                outcomes = self._answered_meanwhile(call)
                return {token: outcomes[token] for token in missing if token not in found}
            waited = listed_at - open_call.attempted_at
            if missing and waited < self._traits.shown_within.total_seconds():
                error = CloudProviderError(
                    f"{self._traits.name} did not answer the launch, and its instance is looked for"
                )
                return {token: error for token in missing if token not in found}
            self._unanswered.note_answered(call.requests, failed=())
            if len(missing) == len(call.requests):
                self._cloud.release(call)
        return {}

    def execute(self, job: LaunchJob[Call, Answer]) -> dict[str, LaunchOutcome]:
        """Launch an instance for each request of a job; return the outcomes by token.

        The job is asked for further calls until each claim has an instance or nothing is left to try.
        """
        outcomes: dict[str, LaunchOutcome] = {}
        try:
            self._execute(job, outcomes)
        except Exception as error:
            self._add_unexpected(error, [request.token for request in job.requests], outcomes)
        return outcomes

    def _execute(self, job: LaunchJob[Call, Answer], outcomes: dict[str, LaunchOutcome]) -> None:
        answered: list[AnsweredCall[Call, Answer]] = []
        refusal: CloudProviderError | None = None
        unserved: list[LaunchRequest] = list(job.requests)
        while unserved:
            tokens = [request.token for request in unserved]
            try:
                call = job.next_call(unserved, self._unanswered.attempts(tokens))
            except (CloudProviderError, BadInputError) as error:
                reason = self._traits.bad_input_reason
                outcomes |= dict.fromkeys(tokens, as_outcome(error, reason=reason))
                return
            if call is None:
                break
            result = self._send(call)
            if isinstance(result, CallFailure):
                refusal = result.error
                if result.needs_other_form:
                    continue
                outcomes |= dict.fromkeys(tokens, refusal)
                return
            self._settle(result, outcomes, {})
            unserved = [request for request in unserved if request.token not in outcomes]
            answered.append(result)
            job.note_answer(result)
        if unserved:
            error = (
                self._unserved_error(answered) if answered else refusal or job.error_without_call()
            )
            outcomes |= dict.fromkeys((request.token for request in unserved), error)
        elif answered:
            self._add_shortages(answered, outcomes)

    def _send(
        self, call: Call, repeated: OpenCall[Call] | None = None, *, listed_at: float = 0.0
    ) -> AnsweredCall[Call, Answer] | CallFailure[Answer]:
        """Make an attempt; a failure that counts as an answer is returned as one."""
        result = self._attempt(call)
        if not isinstance(result, CallFailure):
            return AnsweredCall(call=call, answer=result)
        if result.kind is FailureKind.UNANSWERED:
            # Its reservation stays until the cloud is asked again.
            open_call = repeated or OpenCall(call=call, attempted_at=0.0)
            open_call.attempted_at = self._clock.monotonic()
            self._unanswered.note_unanswered(call.requests, open_call)
            return CallFailure(kind=result.kind, error=_unanswered_error(result.error))
        if repeated is not None and not self._is_answer(result.kind, repeated, listed_at):
            return CallFailure(kind=result.kind, error=_unanswered_error(result.error))
        if result.kind is FailureKind.LAUNCHED_ELSEWHERE:
            self._note_launched_elsewhere(call, result.error)
        elif result.answer is not None:
            return AnsweredCall(call=call, answer=result.answer)
        else:
            self._unanswered.note_answered(call.requests, failed=())
        self._cloud.release(call)
        return result

    def _attempt(self, call: Call) -> Answer | CallFailure[Answer]:
        try:
            return self._cloud.send(call)
        except Exception as error:
            self._log.exception("a launch call failed unexpectedly")
            outcome = CloudProviderError(f"the call failed unexpectedly: {error!r}")
            outcome.__cause__ = error
            return CallFailure(kind=FailureKind.UNANSWERED, error=outcome)

    def _is_answer(self, kind: FailureKind, repeated: OpenCall[Call], listed_at: float) -> bool:
        """Whether a failure answers the earlier attempts of a call, too."""
        if kind is FailureKind.EXHAUSTED:
            # The claims have no instance in a listing that would show those of the last attempt.
            return listed_at - repeated.attempted_at >= self._traits.shown_within.total_seconds()
        return kind is not FailureKind.REFUSED

    def _note_launched_elsewhere(self, call: LaunchCall, error: CloudProviderError) -> None:
        """Let claims wait until the listing shows what another process launched, then call anew."""
        reason = CloudProviderError(f"another process may have launched this NodeClaim: {error}")
        for token in call.requests:
            self._launched_elsewhere.put(token, reason)
            self._calls_elsewhere.put(token, value=True)
        self._unanswered.note_answered(call.requests, failed=tuple(call.requests))

    def _answered_meanwhile(self, call: Call) -> dict[str, LaunchOutcome]:
        """Return the outcomes of claims whose call another thread has repeated."""
        outcomes: dict[str, LaunchOutcome] = {}
        for token in call.requests:
            recent = self._recent.of_claim(token)
            outcomes[token] = (
                CloudProviderError(
                    "an earlier launch call was answered meanwhile, without an instance"
                )
                if recent is None
                else recent.outcome
            )
        return outcomes

    def _settle(
        self,
        answered: AnsweredCall[Call, Answer],
        outcomes: dict[str, LaunchOutcome],
        known: Mapping[str, ClaimRef],
    ) -> None:
        """Add the outcomes of claims that have an instance, and remember these instances first."""
        call, instance_ids = answered.call, answered.answer.instance_ids
        owners = self._claims.assign(call, instance_ids, known)
        launched: set[str] = set()
        for instance_id in instance_ids:
            owner = owners.get(instance_id)
            if owner is not None and owner.uid in call.requests:
                outcomes[owner.uid] = self._launched_outcome(answered, instance_id, owner)
                launched.add(owner.uid)
        failed = [token for token in call.requests if token not in launched]
        self._unanswered.note_answered(call.requests, failed=failed)
        try:
            self._cloud.record(answered)
        except Exception:
            self._log.exception("a launch could not be recorded in the stock of offerings")
        if failed:
            self._log.info(
                "launch returned too few instances",
                reference=answered.answer.reference,
                missing=len(failed),
                claims=len(call.requests),
            )

    def _launched_outcome(
        self, answered: AnsweredCall[Call, Answer], instance_id: str, owner: ClaimRef
    ) -> LaunchOutcome:
        request = answered.call.requests[owner.uid]
        outcome = self._cloud.outcome_of_new(answered, instance_id, request)
        launch = RecentLaunch.of(instance_id, owner, outcome, created=self._clock.now())
        self._recent.add(launch)
        return outcome

    def _unserved_error(self, answered: Sequence[AnsweredCall[Call, Answer]]) -> CloudProviderError:
        error = self._cloud.unserved_error(answered)
        self._log.info("launch returned no instance for some nodeclaims", error=str(error))
        return error

    def _add_shortages(
        self, answered: Sequence[AnsweredCall[Call, Answer]], outcomes: dict[str, LaunchOutcome]
    ) -> None:
        """Add what the calls found sold out to one of their launched instances."""
        shortage = self._cloud.unserved_error(answered)
        if not isinstance(shortage, InsufficientCapacityError) or not (
            shortage.offerings or shortage.quota_groups
        ):
            return
        for token, outcome in outcomes.items():
            if isinstance(outcome, LaunchedInstance):
                outcomes[token] = replace(outcome, shortages=(shortage,))
                return

    def _add_unexpected(
        self, error: Exception, tokens: Iterable[str], outcomes: dict[str, LaunchOutcome]
    ) -> None:
        """Add an error for claims without an outcome that never makes the core give them up."""
        self._log.exception("a launch failed unexpectedly")
        outcome = CloudProviderError(f"the launch failed unexpectedly: {error!r}")
        outcome.__cause__ = error
        for token in tokens:
            outcomes.setdefault(token, outcome)


def _has_instance(outcome: LaunchOutcome | None) -> bool:
    """Whether a claim has an instance, or had one that was terminated."""
    return isinstance(outcome, LaunchedInstance | LaunchFailedError)


def _unanswered_error(error: CloudProviderError) -> CloudProviderError:
    """Return the outcome of claims that may have an instance; never one that gives a claim up."""
    outcome = CloudProviderError(f"the launch may have been executed: {error}")
    outcome.__cause__ = error
    return outcome
