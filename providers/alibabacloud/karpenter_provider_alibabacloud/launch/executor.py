"""Sends launch calls, records their answers, repeats unanswered ones.

A call that is not answered may have been carried out. It is remembered, and repeated word for word
when one of its claims comes back: ECS answers the same token with the same instances. It is
remembered until ECS has answered it: a refusal that comes before ECS reads the token (throttling, a
permission, a token still in progress) says nothing about the first try.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import RESERVED
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    LaunchFailedError,
)
from karpenter_core.provider.contract import Instance
from karpenter_core.provider.kit.recent_launches import RecentLaunch, UnansweredCalls
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud.codes import (
    SHORTAGES,
    ApiError,
    ErrorClass,
    core_error,
    launch_reason,
)
from karpenter_provider_alibabacloud.described_instances import VISIBLE_WITHIN
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.launch.answers import (
    LaunchAnswer,
    as_outcome,
    read_group_answer,
    read_run_answer,
    refusal_answer,
    shortages_of,
    unserved_outcome,
)
from karpenter_provider_alibabacloud.launch.calls import ADDRESSES_LIFE
from karpenter_provider_alibabacloud.launch.launched_instances import (
    LaunchDetails,
    launched_instance,
)
from karpenter_provider_alibabacloud.launch.requests import RUN_INSTANCES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunches
    from karpenter_core.provider.kit.token_bucket import TokenBucket
    from karpenter_provider_alibabacloud.launch.answers import NewInstance
    from karpenter_provider_alibabacloud.launch.boot_configuration import BootConfiguration
    from karpenter_provider_alibabacloud.launch.calls import (
        Availability,
        LaunchApiCall,
        LaunchCallBuilder,
        TriedTarget,
    )
    from karpenter_provider_alibabacloud.launch.plans import LaunchPlan
    from karpenter_provider_alibabacloud.launch.targets import LaunchTarget
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["LaunchExecutor"]

_ROUNDS: Final = 5
"""Maximum number of calls of a launch to untried targets, within one call of the core."""
_QUOTA_LIFE: Final = timedelta(minutes=10)
"""Time that offerings with a used-up quota are unavailable."""
_MISMATCHED_REQUEST: Final = "IdempotentParameterMismatch"
"""The code for a token that came before, with something else: another process launched the same."""
_ELSEWHERE: Final = SHORTAGES | {ErrorClass.UNKNOWN}
"""Refusals after which other targets are tried; after an unknown one, once more."""
_INCONCLUSIVE: Final = frozenset(
    {ErrorClass.CAPACITY, ErrorClass.ADDRESSES, ErrorClass.QUOTA, ErrorClass.DISK_QUOTA}
)
"""Refusals of a repeated token that may be about the repetition alone: the instances of an earlier try
have used up what it is refused for. They answer it once ECS would show these instances."""
_CONCLUSIVE: Final = SHORTAGES - _INCONCLUSIVE
"""Refusals that answer a repeated token: nothing was made by an earlier try."""


@final
class LaunchExecutor:
    """Sends launch calls and records their answers; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        calls: LaunchCallBuilder,
        availability: Availability,
        recent: RecentLaunches,
        bucket: TokenBucket,
        sleep: Callable[[float], None] = time.sleep,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
        observe_targets: Callable[[int], None] = lambda _pairs: None,
    ) -> None:
        """`bucket` holds calls back.

        `observe_batch` gets the number of claims of a call, `observe_targets` that of targets
        to choose from.
        """
        self._clients: Final = clients
        self._clock: Final = clock
        self._calls: Final = calls
        self._availability: Final = availability
        self._recent: Final = recent
        self._bucket: Final = bucket
        self._sleep: Final = sleep
        self._observe_batch: Final = observe_batch
        self._observe_targets: Final = observe_targets
        self._unanswered_calls: Final[UnansweredCalls[LaunchApiCall]] = UnansweredCalls(clock)
        self._not_yet_visible: Final[TtlCache[str, bool]] = TtlCache(clock, VISIBLE_WITHIN)
        """Client tokens of recent unanswered tries, whose instances ECS may not show yet."""
        self._launched_elsewhere: Final[TtlCache[str, CloudProviderError]] = TtlCache(
            clock, VISIBLE_WITHIN
        )
        self._log: FilteringBoundLogger = structlog.get_logger("alibabacloud.launch")

    def unanswered_call(self, uid: str) -> LaunchApiCall | None:
        """Return the call for a claim that was not answered, and may have been carried out."""
        return self._unanswered_calls.call_for(uid)

    def has_attempted(self, uid: str) -> bool:
        """Whether this process has called for a claim, and repeats its call or makes another one.

        Its call was not answered, or was answered and brought the claim nothing.
        """
        return self._unanswered_calls.has_attempted(uid)

    def wait_reason(self, uid: str) -> CloudProviderError | None:
        """Return why a claim must wait: another process may have launched for it just now."""
        return self._launched_elsewhere.get(uid)

    def execute(
        self,
        plan: LaunchPlan,
        boot_configuration: BootConfiguration,
        requests: Sequence[LaunchRequest],
        *,
        zones: Sequence[str] = (),
    ) -> dict[str, LaunchOutcome]:
        """Launch an instance for each of these requests of a plan; return the outcomes by token.

        What could not be had is asked for elsewhere: in other pairs of the plan, other vSwitches,
        with other images. `zones` are in the order to try them; without any, prices decide.
        """
        outcomes: dict[str, LaunchOutcome] = {}
        answers: list[LaunchAnswer] = []
        targets: list[LaunchTarget] = []
        tried: set[TriedTarget] = set()
        left = list(requests)
        has_failed_oddly = False
        call: LaunchApiCall | None = None
        for _ in range(_ROUNDS):
            tokens = [request.token for request in left]
            try:
                call = self._calls.build(
                    plan,
                    boot_configuration,
                    left,
                    zones=zones,
                    tried=tried,
                    attempts=self._unanswered_calls.attempts(tokens),
                )
                if call is None:
                    break
                answer = self._send(call)
            except (CloudProviderError, BadInputError) as error:
                return outcomes | dict.fromkeys(tokens, as_outcome(error))
            except ApiError as error:
                if call is not None and self._is_about_images(call, error):
                    self._calls.use_one_image_a_call()
                    continue
                return outcomes | dict.fromkeys(tokens, self._outcome_of(call, error))
            outcomes |= self._outcomes_by_claim(call, answer)
            left = [request for request in left if request.token not in outcomes]
            answers.append(answer)
            tried_pairs = call.targets if answer.tried is None else answer.tried
            targets += tried_pairs
            tried |= call.trials(tried_pairs)
            is_odd = any(not failure.is_shortage for failure in answer.failures)
            if not left or (is_odd and has_failed_oddly):
                break
            has_failed_oddly = has_failed_oddly or is_odd
        if left:
            error = (
                unserved_outcome(answers, targets)
                if answers
                else self._calls.unavailable_error(plan)
            )
            outcomes |= dict.fromkeys((r.token for r in left), error)
        return outcomes

    def repeat(
        self, call: LaunchApiCall, owners: Mapping[str, ClaimRef]
    ) -> dict[str, LaunchOutcome]:
        """Make a call again that was not answered; return the outcomes of all its claims by token.

        `owners` names by instance id the claims found in the meantime (`InstanceOwners`).
        """
        try:
            answer = self._send(call)
        except CloudProviderError as error:
            return dict.fromkeys(call.requests, error)
        except ApiError as error:
            return dict.fromkeys(call.requests, self._outcome_of(call, error))
        outcomes = self._outcomes_by_claim(call, answer, owners)
        missing = [token for token in call.requests if token not in outcomes]
        if missing:
            outcomes |= dict.fromkeys(missing, unserved_outcome([answer], call.targets))
        return outcomes

    def _send(self, call: LaunchApiCall) -> LaunchAnswer:
        """Make a call, and take note of what was learned.

        Raises:
            ApiError: nothing came of it that another choice would change.
            CloudProviderError: the answer names instances that were not requested.
        """
        wait_seconds = self._bucket.reserve()
        if wait_seconds > 0:
            self._sleep(wait_seconds)
        self._observe_batch(call.action, len(call.requests))
        self._observe_targets(len(call.targets))
        try:
            body = self._clients.ecs.call(call.action, call.parameters)
        except ApiError as error:
            if self._may_be_done(call, error):
                # The addresses stay reserved until vSwitches are read again.
                if error.may_be_done:
                    self._not_yet_visible.put(_token_of(call), value=True)
                self._unanswered_calls.note_unanswered(call.requests, call)
                raise
            if error.code == _MISMATCHED_REQUEST:
                self._note_launched_elsewhere(call, error)
            if error.error_class not in _ELSEWHERE:
                self._availability.vswitches.restore(call.hold)
                if error.code != _MISMATCHED_REQUEST:
                    self._unanswered_calls.note_answered(call.requests, failed=())
                raise
            answer = refusal_answer(error, call.targets)
        else:
            is_run = call.action == RUN_INSTANCES
            answer = (
                read_run_answer(body, call.targets[0])
                if is_run
                else read_group_answer(body, call.targets)
            )
        self._record_answer(call, answer)
        return answer

    def _may_be_done(self, call: LaunchApiCall, error: ApiError) -> bool:
        """Return whether a call may have been carried out, now or by a try before this one."""
        if error.error_class in _CONCLUSIVE or error.code == _MISMATCHED_REQUEST:
            return False
        if error.may_be_done:
            return True
        if error.error_class in _INCONCLUSIVE:
            # The claims of a call that is repeated later than that are not in the listing.
            return self._not_yet_visible.get(_token_of(call)) is not None
        return self._unanswered_calls.is_unanswered(call.requests, call)

    def _outcome_of(self, call: LaunchApiCall | None, error: ApiError) -> CloudProviderError:
        """Return the outcome of a call that was refused, or not answered."""
        if call is not None and self._unanswered_calls.is_unanswered(call.requests, call):
            # None of the errors that say that nothing was done.
            outcome = CloudProviderError(f"the launch may have been executed: {error}")
            outcome.__cause__ = error
            return outcome
        return _refused_outcome(error)

    def _outcomes_by_claim(
        self, call: LaunchApiCall, answer: LaunchAnswer, known: Mapping[str, ClaimRef] | None = None
    ) -> dict[str, LaunchOutcome]:
        """Return the outcome of each claim that has an instance, by tags as any process would."""
        tags = call.spec.tags
        owners = CLAIM_TAGS.assign_owners({item.id: tags for item in answer.instances}, known)
        outcomes: dict[str, LaunchOutcome] = {}
        for item in answer.instances:
            owner = owners.get(item.id)
            if owner is not None and owner.uid in call.requests:
                outcomes[owner.uid] = self._launched_outcome(call, item, owner)
        failed = [token for token in call.requests if token not in outcomes]
        self._unanswered_calls.note_answered(call.requests, failed=failed)
        if failed:
            self._log.info(
                "launch returned too few instances",
                action=call.action,
                request=answer.request_id,
                missing=len(failed),
                codes=sorted({failure.code for failure in answer.failures}),
            )
        return outcomes

    def _launched_outcome(
        self, call: LaunchApiCall, item: NewInstance, owner: ClaimRef
    ) -> LaunchOutcome:
        request, target = call.requests[owner.uid], item.target
        name = target.instance_type.name
        instance_type = next(it for it in request.instance_types if it.name == name)
        details = LaunchDetails(
            region=self._clients.region,
            instance_id=item.id,
            zone=target.zone,
            capacity_type=call.plan.capacity_type,
            image_id=target.image_id,
            reservation_id=target.reservation_id,
        )
        outcome = launched_instance(details, instance_type, request.node_claim)
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
            RecentLaunch(instance_id=item.id, owner=owner, instance=instance, outcome=outcome)
        )
        return outcome

    def _record_answer(self, call: LaunchApiCall, answer: LaunchAnswer) -> None:
        """Record launched instances and exhausted capacity."""
        now, availability, capacity_type = (
            self._clock.now(),
            self._availability,
            call.plan.capacity_type,
        )
        availability.vswitches.note_launched(call.hold, answer.by_vswitch())
        for target in {id(item.target): item.target for item in answer.instances}.values():
            mark = UnavailableOffering(target.instance_type.name, target.zone, capacity_type)
            availability.unavailable_offerings.delete(mark, now=now)
        if capacity_type == RESERVED:
            for item in answer.instances:
                availability.reservation_counts.note_launched(
                    item.target.reservation_id, launched_at=now
                )
        marks = shortages_of(
            answer.failures,
            capacity_type=capacity_type,
            categories=call.categories,
            types=call.plan.instance_types(),
        )
        if marks.offerings:
            availability.unavailable_offerings.mark(*marks.offerings, now=now)
        if marks.quotas:
            availability.unavailable_offerings.mark(*marks.quotas, now=now, life=_QUOTA_LIFE)
        for vswitch_id in marks.vswitches:
            availability.unavailable_offerings.mark_subnet(vswitch_id, now=now, life=ADDRESSES_LIFE)
            availability.vswitches.note_exhausted(vswitch_id)
        availability.disks.mark(*marks.disks)
        availability.reservation_counts.note_exhausted(*marks.reservations)

    def _note_launched_elsewhere(self, call: LaunchApiCall, error: ApiError) -> None:
        """Let claims wait until ECS shows what another process launched; then a new call is made."""
        reason = CloudProviderError(f"another process may have launched this NodeClaim: {error}")
        for token in call.requests:
            self._launched_elsewhere.put(token, reason)
        self._unanswered_calls.note_answered(call.requests, failed=tuple(call.requests))

    @staticmethod
    def _is_about_images(call: LaunchApiCall, error: ApiError) -> bool:
        """Whether ECS refuses the images of instances of two architectures in one call."""
        error_text = f"{error.code} {error.message}"
        return (
            call.has_images
            and error.error_class is ErrorClass.CONFIGURATION
            and "LaunchTemplateConfig" in error_text
            and "ImageId" in error_text
        )


def _token_of(call: LaunchApiCall) -> str:
    return str(call.parameters["ClientToken"])


def _refused_outcome(error: ApiError) -> CloudProviderError:
    """Return the outcome of a call that was refused."""
    passing = {ErrorClass.THROTTLED, ErrorClass.AUTH, ErrorClass.TRANSIENT}
    if error.error_class in passing or error.code == _MISMATCHED_REQUEST:
        outcome = core_error(error)
    else:
        reason = launch_reason(error.code, error.message, status=error.status)
        outcome = LaunchFailedError(str(error), reason=reason)
    outcome.__cause__ = error
    return outcome
