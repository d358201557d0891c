"""One call at a time: make it, read the answer, take note of what was learned.

A call whose answer does not come may have been carried out. It is remembered, and repeated word for word
when one of its claims comes back: ECS answers the same token with the same instances. It is remembered
until ECS has answered it: a refusal that comes before the token is looked at (throttling, a permission, a
token still in progress) says nothing about the first try.
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
from karpenter_core.provider.kit.recent_launches import Launch, Uncertain
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_core.provider.kit.unavailable import OfferingMark
from karpenter_provider_alibabacloud.codes import (
    SHORTAGES,
    ApiError,
    ErrorClass,
    core_error,
    launch_reason,
)
from karpenter_provider_alibabacloud.described import VISIBLE_WITHIN
from karpenter_provider_alibabacloud.instance_owners import CLAIM_TAGS
from karpenter_provider_alibabacloud.launch.calls import ADDRESSES_LIFE
from karpenter_provider_alibabacloud.launch.launched import Facts, launched_instance
from karpenter_provider_alibabacloud.launch.outcome import (
    Answer,
    as_outcome,
    marks_of,
    read_group,
    read_run,
    refused,
    why_unserved,
)
from karpenter_provider_alibabacloud.launch.requests import RUN_INSTANCES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunches
    from karpenter_core.provider.kit.token_bucket import TokenBucket
    from karpenter_provider_alibabacloud.launch.boots import Boots
    from karpenter_provider_alibabacloud.launch.calls import Call, CallMaker, Shelves, Trial
    from karpenter_provider_alibabacloud.launch.outcome import Bought
    from karpenter_provider_alibabacloud.launch.pairs import Pair
    from karpenter_provider_alibabacloud.launch.plans import Plan
    from karpenter_provider_alibabacloud.sdk import Clients

__all__ = ["Buyer"]

_ROUNDS: Final = 5
"""How often a launch goes on to what was not tried yet, within one call of the core."""
_QUOTA_LIFE: Final = timedelta(minutes=10)
"""How long nothing is launched of what a quota is used up for."""
_OTHERS_CALL: Final = "IdempotentParameterMismatch"
"""The code for a token that came before, with something else: another process launched the same."""
_ELSEWHERE: Final = SHORTAGES | {ErrorClass.UNKNOWN}
"""Refusals after which something else may be had; of those nobody knows, one more try."""
_USED_UP: Final = frozenset(
    {ErrorClass.CAPACITY, ErrorClass.ADDRESSES, ErrorClass.QUOTA, ErrorClass.DISK_QUOTA}
)
"""Refusals of a repeated token that may be about the repetition alone: the instances of an earlier try
have used up what it is refused for. They answer it once ECS would show these instances."""
_ANSWERS: Final = SHORTAGES - _USED_UP
"""Refusals that answer a repeated token: nothing was made by an earlier try."""


@final
class Buyer:
    """Asks for instances; callable from any thread."""

    def __init__(
        self,
        clients: Clients,
        clock: Clock,
        *,
        calls: CallMaker,
        shelves: Shelves,
        recent: RecentLaunches,
        bucket: TokenBucket,
        sleep: Callable[[float], None] = time.sleep,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
        observe_pairs: Callable[[int], None] = lambda _pairs: None,
    ) -> None:
        """`bucket` holds calls back.

        `observe_batch` is told how many claims share a call, `observe_pairs` what there is to choose
        from in it.
        """
        self._clients: Final = clients
        self._clock: Final = clock
        self._calls: Final = calls
        self._shelves: Final = shelves
        self._recent: Final = recent
        self._bucket: Final = bucket
        self._sleep: Final = sleep
        self._observe_batch: Final = observe_batch
        self._observe_pairs: Final = observe_pairs
        self._uncertain: Final[Uncertain[Call]] = Uncertain(clock)
        self._unseen: Final[TtlCache[str, bool]] = TtlCache(clock, VISIBLE_WITHIN)
        """Client tokens of tries that nobody answered so late that ECS may not show their instances."""
        self._others: Final[TtlCache[str, CloudProviderError]] = TtlCache(clock, VISIBLE_WITHIN)
        self._log: FilteringBoundLogger = structlog.get_logger("alibabacloud.launch")

    def unanswered(self, uid: str) -> Call | None:
        """Return the call for a claim of which nobody knows whether it was carried out."""
        return self._uncertain.call_for(uid)

    def knows_of(self, uid: str) -> bool:
        """Whether this process knows itself what to do for a claim: it repeats its own call, or makes one.

        Its call was not answered, or was answered and brought the claim nothing.
        """
        return self.unanswered(uid) is not None or bool(self._uncertain.attempts([uid]))

    def waiting(self, uid: str) -> CloudProviderError | None:
        """Return why a claim must wait: another process may have launched for it just now."""
        return self._others.get(uid)

    def buy(
        self,
        plan: Plan,
        boots: Boots,
        requests: Sequence[LaunchRequest],
        *,
        zones: Sequence[str] = (),
    ) -> dict[str, LaunchOutcome]:
        """Launch an instance for each of these requests of a plan; return the outcomes by token.

        What could not be had is asked for elsewhere: in other pairs of the plan, other vSwitches,
        with other images. `zones` are in the order to try them; without any, prices decide.
        """
        outcomes: dict[str, LaunchOutcome] = {}
        answers: list[Answer] = []
        pairs: list[Pair] = []
        tried: set[Trial] = set()
        left = list(requests)
        has_failed_oddly = False
        call: Call | None = None
        for _ in range(_ROUNDS):
            tokens = [request.token for request in left]
            try:
                call = self._calls.make(
                    plan,
                    boots,
                    left,
                    zones=zones,
                    tried=tried,
                    attempts=self._uncertain.attempts(tokens),
                )
                if call is None:
                    break
                answer = self._made(call)
            except (CloudProviderError, BadInputError) as error:
                return outcomes | dict.fromkeys(tokens, as_outcome(error))
            except ApiError as error:
                if call is not None and self._is_about_images(call, error):
                    self._calls.use_one_image_a_call()
                    continue
                return outcomes | dict.fromkeys(tokens, self._outcome_of(call, error))
            outcomes |= self._dealt(call, answer)
            left = [request for request in left if request.token not in outcomes]
            answers.append(answer)
            tried_pairs = call.pairs if answer.tried is None else answer.tried
            pairs += tried_pairs
            tried |= call.trials(tried_pairs)
            is_odd = any(not failure.is_shortage for failure in answer.failures)
            if not left or (is_odd and has_failed_oddly):
                break
            has_failed_oddly = has_failed_oddly or is_odd
        if left:
            error = why_unserved(answers, pairs) if answers else self._calls.nothing_left(plan)
            outcomes |= dict.fromkeys((r.token for r in left), error)
        return outcomes

    def repeat(self, call: Call, known: Mapping[str, ClaimRef]) -> dict[str, LaunchOutcome]:
        """Make a call again that was not answered; return the outcomes of all its claims by token.

        `known` tells by instance id what some claims have found meanwhile (`KnownOwners`).
        """
        try:
            answer = self._made(call)
        except CloudProviderError as error:
            return dict.fromkeys(call.requests, error)
        except ApiError as error:
            return dict.fromkeys(call.requests, self._outcome_of(call, error))
        outcomes = self._dealt(call, answer, known)
        missing = [token for token in call.requests if token not in outcomes]
        if missing:
            outcomes |= dict.fromkeys(missing, why_unserved([answer], call.pairs))
        return outcomes

    def _made(self, call: Call) -> Answer:
        """Make a call, and take note of what was learned.

        Raises:
            ApiError: nothing came of it that another choice would change.
            CloudProviderError: the answer tells of what was not asked for.
        """
        wait_seconds = self._bucket.reserve()
        if wait_seconds > 0:
            self._sleep(wait_seconds)
        self._observe_batch(call.action, len(call.requests))
        self._observe_pairs(len(call.pairs))
        try:
            body = self._clients.ecs.call(call.action, call.parameters)
        except ApiError as error:
            if self._may_be_done(call, error):
                # The addresses stay reserved until vSwitches are read again.
                if error.may_be_done:
                    self._unseen.put(_token_of(call), value=True)
                self._uncertain.note_unanswered(call.requests, call)
                raise
            if error.code == _OTHERS_CALL:
                self._note_others(call, error)
            if error.error_class not in _ELSEWHERE:
                self._shelves.vswitches.restore(call.hold)
                if error.code != _OTHERS_CALL:
                    self._uncertain.note_answered(call.requests, failed=())
                raise
            answer = refused(error, call.pairs)
        else:
            is_run = call.action == RUN_INSTANCES
            answer = read_run(body, call.pairs[0]) if is_run else read_group(body, call.pairs)
        self._take_note(call, answer)
        return answer

    def _may_be_done(self, call: Call, error: ApiError) -> bool:
        """Return whether a call may have been carried out, now or by a try before this one."""
        if error.error_class in _ANSWERS or error.code == _OTHERS_CALL:
            return False
        if error.may_be_done:
            return True
        if error.error_class in _USED_UP:
            # The claims of a call that is repeated later than that are not in the listing.
            return self._unseen.get(_token_of(call)) is not None
        return self._is_unanswered(call)

    def _is_unanswered(self, call: Call) -> bool:
        return any(self._uncertain.call_for(token) is call for token in call.requests)

    def _outcome_of(self, call: Call | None, error: ApiError) -> CloudProviderError:
        """Return the outcome of a call that was refused, or not answered."""
        if call is not None and self._is_unanswered(call):
            # None of the errors that say that nothing was done.
            outcome = CloudProviderError(f"the launch may have been carried out: {error}")
            outcome.__cause__ = error
            return outcome
        return _outcome_of(error)

    def _dealt(
        self, call: Call, answer: Answer, known: Mapping[str, ClaimRef] | None = None
    ) -> dict[str, LaunchOutcome]:
        """Give each claim its instance, as everybody will who looks at the tags."""
        tags = call.wanted.tags
        owners = CLAIM_TAGS.deal({item.id: tags for item in answer.bought}, known)
        outcomes: dict[str, LaunchOutcome] = {}
        for item in answer.bought:
            owner = owners.get(item.id)
            if owner is not None and owner.uid in call.requests:
                outcomes[owner.uid] = self._launched(call, item, owner)
        failed = [token for token in call.requests if token not in outcomes]
        self._uncertain.note_answered(call.requests, failed=failed)
        if failed:
            self._log.info(
                "launch brought too little",
                action=call.action,
                request=answer.request_id,
                missing=len(failed),
                codes=sorted({failure.code for failure in answer.failures}),
            )
        return outcomes

    def _launched(self, call: Call, item: Bought, owner: ClaimRef) -> LaunchOutcome:
        request, pair = call.requests[owner.uid], item.pair
        name = pair.instance_type.name
        instance_type = next(it for it in request.instance_types if it.name == name)
        facts = Facts(
            region=self._clients.region,
            instance_id=item.id,
            zone=pair.zone,
            capacity_type=call.plan.capacity_type,
            image_id=pair.image_id,
            reservation_id=pair.reservation_id,
        )
        outcome = launched_instance(facts, instance_type, request.node_claim)
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
            Launch(instance_id=item.id, owner=owner, instance=instance, outcome=outcome)
        )
        return outcome

    def _take_note(self, call: Call, answer: Answer) -> None:
        """Write down what was bought and what was found exhausted."""
        now, shelves, capacity_type = self._clock.now(), self._shelves, call.plan.capacity_type
        shelves.vswitches.note_launched(call.hold, answer.by_vswitch())
        for pair in {id(item.pair): item.pair for item in answer.bought}.values():
            mark = OfferingMark(pair.instance_type.name, pair.zone, capacity_type)
            shelves.unavailable.delete(mark, now=now)
        if capacity_type == RESERVED:
            for item in answer.bought:
                shelves.availability.note_launched(item.pair.reservation_id, launched_at=now)
        marks = marks_of(
            answer.failures,
            capacity_type=capacity_type,
            categories=call.categories,
            types=call.plan.instance_types(),
        )
        if marks.offerings:
            shelves.unavailable.mark(*marks.offerings, now=now)
        if marks.quotas:
            shelves.unavailable.mark(*marks.quotas, now=now, life=_QUOTA_LIFE)
        for vswitch_id in marks.vswitches:
            shelves.unavailable.mark_subnet(vswitch_id, now=now, life=ADDRESSES_LIFE)
            shelves.vswitches.note_exhausted(vswitch_id)
        shelves.disks.mark(*marks.disks)
        shelves.availability.note_exhausted(*marks.reservations)

    def _note_others(self, call: Call, error: ApiError) -> None:
        """Let claims wait until ECS shows what another process launched; then a new call is made."""
        reason = CloudProviderError(f"another process may just have launched this: {error}")
        for token in call.requests:
            self._others.put(token, reason)
        self._uncertain.note_answered(call.requests, failed=tuple(call.requests))

    @staticmethod
    def _is_about_images(call: Call, error: ApiError) -> bool:
        """Whether ECS does not take what we send for machines of two architectures."""
        said = f"{error.code} {error.message}"
        return (
            call.has_images
            and error.error_class is ErrorClass.CONFIGURATION
            and "LaunchTemplateConfig" in said
            and "ImageId" in said
        )


def _token_of(call: Call) -> str:
    return str(call.parameters["ClientToken"])


def _outcome_of(error: ApiError) -> CloudProviderError:
    """Return the outcome of a call that was refused."""
    passing = {ErrorClass.THROTTLED, ErrorClass.AUTH, ErrorClass.TRANSIENT}
    if error.error_class in passing or error.code == _OTHERS_CALL:
        outcome = core_error(error)
    else:
        reason = launch_reason(error.code, error.message, status=error.status)
        outcome = LaunchFailedError(str(error), reason=reason)
    outcome.__cause__ = error
    return outcome
