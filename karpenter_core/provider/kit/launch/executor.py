"""Sends launch calls, deals their instances to claims and remembers calls without an answer.

A call without an answer may have been carried out. It is remembered, and repeated word for word when
one of its claims comes back: the cloud answers the same token with the same instances. A refusal that
does not depend on the token (throttling, a permission) says nothing about an earlier attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, final

import structlog

from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_core.provider.contract import Instance
from karpenter_core.provider.kit.launch.cloud import (
    Answer,
    Call,
    CallFailure,
    Described,
    FailureKind,
    LaunchRound,
)
from karpenter_core.provider.kit.launch.existing_instances import as_outcome
from karpenter_core.provider.kit.recent_launches import RecentLaunch, UnansweredCalls
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Iterable

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

__all__ = ["CallExecutor"]


@final
class CallExecutor(Generic[Described, Call, Answer]):
    """Sends launch calls; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        cloud: LaunchCloud[Described, Call, Answer],
        *,
        claims: InstanceClaims[Described],
        recent: RecentLaunches,
        traits: CloudTraits,
    ) -> None:
        self._clock: Final = clock
        self._cloud: Final = cloud
        self._traits: Final = traits
        self._claims: Final = claims
        self._recent: Final = recent
        self._unanswered: Final[UnansweredCalls[Call]] = UnansweredCalls(clock)
        self._not_yet_shown: Final[TtlCache[int, Call]] = TtlCache(clock, traits.shown_within)
        """Calls, by identity, whose last attempt was not answered a short time ago."""
        self._launched_elsewhere: Final[TtlCache[str, CloudProviderError]] = TtlCache(
            clock, traits.shown_within
        )
        self._log: FilteringBoundLogger = structlog.get_logger(traits.log_name)

    def has_attempted(self, token: str) -> bool:
        """Whether this process has called for a claim, and repeats its call or makes another one.

        Its call was not answered, or was answered and brought the claim nothing.
        """
        return self._unanswered.has_attempted(token)

    def wait_reason(self, token: str) -> CloudProviderError | None:
        """Return why a claim must wait: another process may have launched for it just now."""
        return self._launched_elsewhere.get(token)

    def unanswered_calls(self, tokens: Iterable[str]) -> list[Call]:
        """Return the calls for these claims that were not answered, each once."""
        calls = (self._unanswered.call_for(token) for token in tokens)
        return list({id(call): call for call in calls if call is not None}.values())

    def repeat(self, call: Call) -> dict[str, LaunchOutcome]:
        """Make a call again that was not answered; return the outcomes of all its claims by token."""
        result = self._send(call)
        if isinstance(result, CallFailure):
            return dict.fromkeys(call.requests, result.error)
        outcomes = self._launched_outcomes(result, is_repeated=True)
        missing = [token for token in call.requests if token not in outcomes]
        if missing:
            outcomes |= dict.fromkeys(missing, self._cloud.unserved_error([result]))
        return outcomes

    def execute(self, job: LaunchJob[Call, Answer]) -> dict[str, LaunchOutcome]:
        """Launch an instance for each request of a job; return the outcomes by token.

        The job is asked for further calls until each claim has an instance or nothing is left to try.
        """
        outcomes: dict[str, LaunchOutcome] = {}
        rounds: list[LaunchRound[Call, Answer]] = []
        unserved: list[LaunchRequest] = list(job.requests)
        while unserved:
            tokens = [request.token for request in unserved]
            try:
                call = job.next_call(unserved, self._unanswered.attempts(tokens))
            except (CloudProviderError, BadInputError) as error:
                reason = self._traits.bad_input_reason
                return outcomes | dict.fromkeys(tokens, as_outcome(error, reason=reason))
            if call is None:
                break
            result = self._send(call)
            if isinstance(result, CallFailure):
                if result.needs_other_form:
                    continue
                return outcomes | dict.fromkeys(tokens, result.error)
            outcomes |= self._launched_outcomes(result, is_repeated=False)
            unserved = [request for request in unserved if request.token not in outcomes]
            rounds.append(result)
            job.note_round(result)
        if unserved:
            error = self._cloud.unserved_error(rounds) if rounds else job.error_without_call()
            outcomes |= dict.fromkeys((request.token for request in unserved), error)
        return outcomes

    def _send(self, call: Call) -> LaunchRound[Call, Answer] | CallFailure[Answer]:
        """Make a call and record what came of it; an exhaustion counts as an answer."""
        result = self._attempt(call)
        if isinstance(result, CallFailure):
            if self._may_be_carried_out(call, result.kind):
                # What is reserved for it stays so until the cloud is asked again.
                if result.kind is FailureKind.UNANSWERED:
                    self._not_yet_shown.put(id(call), call)
                    self._unanswered.note_unanswered(call.requests, call)
                return CallFailure(kind=result.kind, error=_unanswered_error(result.error))
            if result.kind is FailureKind.LAUNCHED_ELSEWHERE:
                self._note_launched_elsewhere(call, result.error)
            elif result.answer is None:
                self._unanswered.note_answered(call.requests, failed=())
            if result.answer is None:
                self._cloud.release(call)
                return result
            result = result.answer
        launch_round = LaunchRound(call=call, answer=result)
        self._cloud.record(launch_round)
        return launch_round

    def _attempt(self, call: Call) -> Answer | CallFailure[Answer]:
        try:
            return self._cloud.send(call)
        except Exception as error:  # whatever went wrong, instances may exist
            outcome = CloudProviderError(f"the answer to a launch cannot be read: {error!r}")
            outcome.__cause__ = error
            return CallFailure(kind=FailureKind.UNANSWERED, error=outcome)

    def _may_be_carried_out(self, call: Call, kind: FailureKind) -> bool:
        """Whether a call may have been carried out, now or by an earlier attempt."""
        match kind:
            case FailureKind.UNANSWERED:
                return True
            case FailureKind.REFUSED:
                return self._unanswered.is_unanswered(call.requests, call)
            case FailureKind.EXHAUSTED:
                # Claims whose call is repeated later than that are not in the listing.
                return self._not_yet_shown.get(id(call)) is call
            case FailureKind.FINAL | FailureKind.LAUNCHED_ELSEWHERE:
                return False

    def _note_launched_elsewhere(self, call: LaunchCall, error: CloudProviderError) -> None:
        """Let claims wait until the listing shows what another process launched, then call anew."""
        reason = CloudProviderError(f"another process may have launched this NodeClaim: {error}")
        for token in call.requests:
            self._launched_elsewhere.put(token, reason)
        self._unanswered.note_answered(call.requests, failed=tuple(call.requests))

    def _launched_outcomes(
        self, launch_round: LaunchRound[Call, Answer], *, is_repeated: bool
    ) -> dict[str, LaunchOutcome]:
        """Return the outcomes of claims that have an instance, and remember these instances."""
        call, instance_ids = launch_round.call, launch_round.answer.instance_ids
        owners = self._claims.assign(call, instance_ids, is_repeated=is_repeated)
        outcomes: dict[str, LaunchOutcome] = {}
        for instance_id in instance_ids:
            owner = owners.get(instance_id)
            if owner is not None and owner.uid in call.requests:
                outcomes[owner.uid] = self._launched_outcome(launch_round, instance_id, owner)
        failed = [token for token in call.requests if token not in outcomes]
        self._unanswered.note_answered(call.requests, failed=failed)
        if failed:
            self._log.info(
                "launch returned too few instances", missing=len(failed), of=len(call.requests)
            )
        return outcomes

    def _launched_outcome(
        self, launch_round: LaunchRound[Call, Answer], instance_id: str, owner: ClaimRef
    ) -> LaunchOutcome:
        request = launch_round.call.requests[owner.uid]
        outcome = self._cloud.outcome_of_new(launch_round, instance_id, request)
        instance = Instance(
            provider_id=outcome.provider_id,
            node_claim=owner.name,
            token=owner.uid,
            instance_type=outcome.instance_type,
            zone=outcome.zone,
            capacity_type=outcome.capacity_type,
            image_id=outcome.image_id,
            created=self._clock.now(),
        )
        self._recent.add(
            RecentLaunch(instance_id=instance_id, owner=owner, instance=instance, outcome=outcome)
        )
        return outcome


def _unanswered_error(error: CloudProviderError) -> CloudProviderError:
    """Return the outcome of claims that may have an instance; never one that gives a claim up."""
    outcome = CloudProviderError(f"the launch may have been executed: {error}")
    outcome.__cause__ = error
    return outcome
