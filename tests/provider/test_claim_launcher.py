"""The launch state machine over a small cloud whose calls fail in every way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import (
    AuthError,
    BadInputError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    OfferingKey,
)
from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
from karpenter_core.provider.kit.claim_tags import ClaimTags
from karpenter_core.provider.kit.launch.cloud import CallFailure, CloudTraits, FailureKind
from karpenter_core.provider.kit.launch.instance_claims import SingleClaims, TaggedClaims
from karpenter_core.provider.kit.launch.launcher import ClaimLauncher
from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunches
from tests.properties import with_examples

START = datetime(2026, 1, 1, tzinfo=UTC)
SHOWN_SECONDS = 60


class Clock:
    """A clock that tests set forward."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return START + timedelta(seconds=self.seconds)

    def monotonic(self):
        return self.seconds


@dataclass
class CloudInstance:
    """An instance of the cloud."""

    id: str
    token: str
    launched_at: datetime
    tags: dict[str, str]
    is_leaving: bool = False


@dataclass
class Call:
    """A call for one claim."""

    requests: dict[str, LaunchRequest]
    idempotency_token: str

    @property
    def tags(self):
        """Return the tags of its instances: all claims, as one value."""
        claims = [ClaimRef(name=token, uid=token) for token in self.requests]
        return {"call": self.idempotency_token, **TAGS.tags_for(claims, other_tags=1)}


@dataclass
class Answer:
    """The instances that a call launched."""

    instance_ids: tuple[str, ...] = ()
    reference: str = ""


LOST = CallFailure(kind=FailureKind.UNANSWERED, error=CloudProviderError("no answer"))
FAILURES = {
    "reply-lost": LOST,
    "request-lost": LOST,
    "refused": CallFailure(
        kind=FailureKind.REFUSED, error=AuthError("denied", action="create-instance")
    ),
    "other-form": CallFailure(
        kind=FailureKind.REFUSED, error=LaunchFailedError("one image"), needs_other_form=True
    ),
    "exhausted": CallFailure(
        kind=FailureKind.EXHAUSTED, error=InsufficientCapacityError("sold out"), answer=Answer()
    ),
    "final": CallFailure(
        kind=FailureKind.FINAL, error=InsufficientCapacityError("not sold"), answer=Answer()
    ),
    "elsewhere": CallFailure(
        kind=FailureKind.LAUNCHED_ELSEWHERE, error=CloudProviderError("token was used")
    ),
}
"""The results of calls beside success, an answer without instances, and an unreadable answer."""


class Job:
    """One call for its requests, and further ones as long as `calls` allows."""

    def __init__(self, requests, calls=1):
        self.requests, self.answers, self.calls_left = tuple(requests), [], calls

    def next_call(self, requests, attempts):
        if not self.calls_left:
            return None
        self.calls_left -= 1
        if any(request.node_claim.name == "unreadable" for request in requests):
            raise BadInputError("user data cannot be read")
        names = "+".join(sorted(request.token for request in requests))
        count = max(attempts.get(request.token, 0) for request in requests)
        return Call({request.token: request for request in requests}, f"{names}:{count}")

    def note_answer(self, answered):
        self.answers.append(answered)

    def error_without_call(self):
        return LaunchFailedError("no subnet")


class Cloud:
    """A cloud that answers a token always alike, and shows instances late."""

    def __init__(self, clock, *, delay_seconds=0.0):
        self.clock, self.delay_seconds = clock, delay_seconds
        self.instances = []
        self.behaviour = []
        """The results of the next calls, in order; the others succeed."""
        self.sent, self.released, self.recorded, self.listings = [], [], [], 0
        self.calls_of_job = self.claims_of_job = 1
        self.capacity = 100
        self.during = []
        """Called while the next listings are read, the first first."""
        self.has_tokens = True
        self.is_blind = self.has_odd_types = self.cannot_record = False
        self._numbers, self._lock = count(), Lock()

    def describe(self, _tokens):
        self.listings += 1
        if self.is_blind:
            raise CloudProviderError("no connection")
        shown = [
            instance
            for instance in self.instances
            if (self.clock.now() - instance.launched_at).total_seconds() >= self.delay_seconds
        ]
        if self.during:
            self.during.pop(0)()
        return shown

    def outcome_of_existing(self, _request, instance):
        if self.has_odd_types:
            raise NodeClassNotReadyError("the NodeClass has no subnets")
        return launched(instance.id)

    def outcome_of_new(self, _answered, instance_id, _request):
        if self.has_odd_types:
            raise KeyError("no such type")
        return launched(instance_id)

    def jobs(self, requests):
        if requests[0].node_class.name == "unready":
            raise CloudProviderError("the NodeClass is not ready")
        size = self.claims_of_job
        parts = [requests[first : first + size] for first in range(0, len(requests), size)]
        return [Job(part, self.calls_of_job) for part in parts], {}

    def send(self, call):
        with self._lock:
            return self._send(call)

    def _send(self, call):
        self.sent.append(call.idempotency_token)
        behaviour = self.behaviour.pop(0) if self.behaviour else "success"
        if callable(behaviour):
            behaviour = behaviour()
        if behaviour == "nothing" and self._of_call(call):
            behaviour = "success"
        if behaviour in {"success", "reply-lost", "unreadable"}:
            instance_ids = self._launch(call)
            if behaviour == "success":
                return Answer(instance_ids)
            if behaviour == "unreadable":
                raise KeyError("InstanceId")
        if behaviour == "nothing":
            return Answer()
        return FAILURES[behaviour]

    def record(self, answered):
        if self.cannot_record:
            raise RuntimeError("no memory")
        self.recorded.append(answered)

    def release(self, call):
        self.released.append(call.idempotency_token)

    def unserved_error(self, answered):
        return InsufficientCapacityError(f"{len(answered)} call(s) brought nothing")

    def _of_call(self, call):
        return [m for m in self.instances if m.tags["call"] == call.idempotency_token]

    def _launch(self, call):
        before = self._of_call(call)
        if not (before and self.has_tokens):
            for token in list(call.requests)[: self.capacity]:
                self.add(call.tags, token=token)
        launched = self._of_call(call)
        return tuple(instance.id for instance in launched if instance not in before) or tuple(
            instance.id for instance in launched
        )

    def add(self, tags, *, token=""):
        """Add an instance of a call with these tags."""
        self.instances.append(
            CloudInstance(
                id=f"i-{next(self._numbers)}",
                token=token,
                launched_at=self.clock.now(),
                tags=dict(tags),
            )
        )

    def claims(self):
        """Count the instances by the claim that they were launched for."""
        return Counter(instance.token for instance in self.instances)


TAGS = ClaimTags(
    key="claims",
    own_key="claim",
    pool_key="pool",
    call_key="call",
    max_characters=256,
    max_tags=50,
    max_claim_tags=10,
    later_tags=2,
    write=lambda claim, _: claim.uid,
    read=lambda entry, _: ClaimRef(name=entry, uid=entry),
)


def launched(instance_id):
    return LaunchedInstance(
        provider_id=instance_id,
        instance_type="small",
        zone="a",
        capacity_type="on-demand",
        capacity={},
        allocatable={},
    )


def claim_of(instance):
    return ClaimRef(name=instance.token, uid=instance.token)


class World:
    """A cloud, and processes that launch in it."""

    def __init__(
        self,
        *,
        finds_claims=True,
        delay_seconds=0.0,
        claims_of_job=1,
        shown_seconds=SHOWN_SECONDS,
        has_tokens=True,
    ):
        self.clock = Clock()
        self.cloud = Cloud(self.clock, delay_seconds=delay_seconds)
        self.cloud.claims_of_job = claims_of_job
        self.finds_claims, self.shown_seconds = finds_claims, shown_seconds
        self.cloud.has_tokens = has_tokens
        self.restart()

    def restart(self):
        self.recent = RecentLaunches(self.clock)
        self.launcher = ClaimLauncher(
            self.clock,
            self.cloud,
            claims=(
                SingleClaims(claim_of)
                if self.cloud.claims_of_job == 1
                else TaggedClaims(TAGS, self.recent.owners)
            ),
            recent=self.recent,
            traits=CloudTraits(
                name="Cloud",
                log_name="test.launch",
                bad_input_reason="InvalidNodeClass",
                finds_claims=self.finds_claims,
                shown_within=timedelta(seconds=self.shown_seconds),
                repeats_calls=self.cloud.has_tokens,
            ),
        )

    def request(self, name, *, node_class="default", created=None):
        metadata = ObjectMeta(name=name, uid=name, creation_timestamp=created or START)
        return LaunchRequest(
            node_claim=NodeClaim.model_construct(metadata=metadata),
            node_class=NodeClass.model_construct(metadata=ObjectMeta(name=node_class)),
            instance_types=(),
        )

    def launch(self, *names, **options):
        return self.launcher.launch([self.request(name, **options) for name in names])

    def launch_one(self, name="a", **options):
        (outcome,) = self.launch(name, **options)
        return outcome


@pytest.fixture(params=[True, False], ids=["finds-claims", "lists-all"])
def world(request):
    return World(finds_claims=request.param)


def test_each_claim_gets_an_instance_in_the_order_of_the_requests(world):
    outcomes = world.launch("b", "a")
    tokens = {instance.id: instance.token for instance in world.cloud.instances}
    assert [tokens[outcome.provider_id] for outcome in outcomes] == ["b", "a"]
    assert sorted(world.recent.all()) == ["i-0", "i-1"]


def test_a_claim_that_has_an_instance_gets_no_other_one(world):
    first = world.launch_one()
    again = world.launch_one()
    world.restart()
    assert first == again == world.launch_one()
    assert world.cloud.sent == ["a:0"]


def test_an_instance_that_the_listing_does_not_show_yet_is_remembered(world):
    world.cloud.delay_seconds = SHOWN_SECONDS - 1
    first = world.launch_one()
    world.clock.seconds += SHOWN_SECONDS - 2
    assert world.launch_one() == first
    assert len(world.cloud.instances) == 1


def test_an_instance_that_the_listing_should_show_and_does_not_was_terminated(world):
    world.launch_one()
    world.cloud.instances.clear()
    world.clock.seconds += SHOWN_SECONDS
    outcome = world.launch_one()
    assert isinstance(outcome, LaunchFailedError)
    assert outcome.reason == "InstanceTerminated"
    assert "i-0" in str(outcome)


def test_an_instance_that_was_seen_to_go_is_not_replaced_under_its_claim(world):
    world.launch_one()
    world.recent.forget("i-0")
    outcome = world.launch_one()
    assert isinstance(outcome, LaunchFailedError)
    assert outcome.reason == "InstanceTerminated"


def test_a_terminating_instance_of_an_earlier_process_fails_the_launch(world):
    world.launch_one()
    world.restart()
    world.cloud.instances[0].is_leaving = True
    assert world.launch_one().reason == "InstanceTerminated"


def test_nothing_is_sent_when_the_listing_cannot_be_read(world):
    world.cloud.is_blind = True
    with pytest.raises(CloudProviderError, match="no connection"):
        world.launch_one()
    assert not world.cloud.sent


def test_a_cloud_with_a_complete_list_needs_no_look_up_of_new_claims():
    """But for the first minutes: the process before this one may have launched for them."""
    world = World(finds_claims=False)
    world.launch_one("a")
    world.launch_one("b", created=world.clock.now())
    assert world.cloud.listings == 2
    world.clock.seconds += 300
    world.launch_one("c", created=world.clock.now())
    assert world.cloud.listings == 2
    world.clock.seconds += 31
    world.launch_one("d", created=world.clock.now() - timedelta(seconds=31))
    world.launch_one("e", created=world.clock.now() + timedelta(seconds=1))
    assert world.cloud.listings == 4, "an age that cannot be is no age"


def test_a_young_claim_keeps_the_instance_that_the_process_before_launched():
    world = World(finds_claims=False)
    assert not any(outcome.existed for outcome in world.launch("a", "b"))
    world.restart()
    assert world.launch_one("a").existed
    assert world.launch_one("b").existed
    assert world.cloud.claims() == {"a": 1, "b": 1}


@pytest.mark.parametrize("loss", ["reply-lost", "request-lost", "unreadable"])
def test_a_call_without_an_answer_is_repeated_with_its_token(world, loss):
    world.cloud.delay_seconds = SHOWN_SECONDS - 1
    world.cloud.behaviour = [loss]
    outcome = world.launch_one()
    assert type(outcome) is CloudProviderError
    again = world.launch_one()
    assert isinstance(again, LaunchedInstance)
    assert again.existed, "the call is that of an earlier launch, with its NodeClass"
    assert world.cloud.sent == ["a:0", "a:0"]
    assert len(world.cloud.instances) == 1
    assert not world.cloud.released, "addresses may be in use"


def test_another_claim_does_not_repeat_a_call_without_an_answer(world):
    world.cloud.behaviour = ["request-lost"]
    world.launch_one("a")
    assert isinstance(world.launch_one("b"), LaunchedInstance)
    assert isinstance(world.launch_one("a"), LaunchedInstance)
    assert world.cloud.sent == ["a:0", "b:0", "a:0"]


def test_a_refusal_releases_the_reservation_and_keeps_the_token(world):
    world.cloud.behaviour = ["refused"]
    assert isinstance(world.launch_one(), AuthError)
    assert world.cloud.released == ["a:0"]
    assert isinstance(world.launch_one(), LaunchedInstance)
    assert world.cloud.sent == ["a:0", "a:0"]


def test_a_refused_repetition_says_nothing_about_the_first_attempt(world):
    world.cloud.delay_seconds = SHOWN_SECONDS - 1
    world.cloud.behaviour = ["reply-lost", "refused"]
    world.launch_one()
    outcome = world.launch_one()
    assert type(outcome) is CloudProviderError
    assert "may have been executed" in str(outcome)
    assert not world.cloud.released
    assert isinstance(world.launch_one(), LaunchedInstance)
    assert len(world.cloud.instances) == 1


def test_an_exhaustion_answers_a_repetition_only_once_the_instances_would_be_shown(world):
    world.cloud.behaviour = ["request-lost", "exhausted", "exhausted"]
    world.launch_one()
    assert type(world.launch_one()) is CloudProviderError
    world.clock.seconds += SHOWN_SECONDS
    assert isinstance(world.launch_one(), InsufficientCapacityError)
    assert isinstance(world.launch_one(), LaunchedInstance)
    assert world.cloud.sent == ["a:0", "a:0", "a:0", "a:1"], "an answered token is not used again"


def test_an_exhaustion_that_excludes_earlier_attempts_answers_at_once(world):
    world.cloud.behaviour = ["request-lost", "final"]
    world.launch_one()
    assert isinstance(world.launch_one(), InsufficientCapacityError)
    assert len(world.cloud.recorded) == 1


def test_claims_that_another_process_may_have_launched_for_wait_until_it_shows(world):
    world.cloud.behaviour = ["elsewhere"]
    world.launch_one()
    assert "another process" in str(world.launch_one())
    world.clock.seconds += SHOWN_SECONDS
    assert isinstance(world.launch_one(), LaunchedInstance)
    assert world.cloud.sent == ["a:0", "a:1"]


def test_a_call_that_brought_nothing_is_a_shortage_and_the_next_one_has_another_token(world):
    world.cloud.behaviour = ["nothing"]
    assert isinstance(world.launch_one(), InsufficientCapacityError)
    assert isinstance(world.launch_one(), LaunchedInstance)
    assert world.cloud.sent == ["a:0", "a:1"]


def test_a_job_is_asked_for_further_calls_until_its_claims_have_instances(world):
    world.cloud.calls_of_job = 3
    world.cloud.behaviour = ["other-form", "nothing"]
    assert isinstance(world.launch_one(), LaunchedInstance)
    assert len(world.cloud.sent) == 3
    assert world.cloud.released == ["a:0"]


def test_a_launch_job_without_a_call_has_a_reason(world):
    world.cloud.calls_of_job = 0
    assert str(world.launch_one()) == "no subnet"


def test_a_fault_of_one_claim_or_node_class_spares_the_others(world):
    outcomes = world.launcher.launch(
        [
            world.request("unreadable"),
            world.request("a", node_class="unready"),
            world.request("b"),
        ]
    )
    assert isinstance(outcomes[0], LaunchFailedError)
    assert outcomes[0].reason == "InvalidNodeClass"
    assert "not ready" in str(outcomes[1])
    assert isinstance(outcomes[2], LaunchedInstance)


class TestCallsForSeveralClaims:
    """One call launches for a and b; its instances are assigned by their tags."""

    @pytest.fixture(params=[True, False], ids=["finds-claims", "lists-all"])
    def world(self, request):
        return World(finds_claims=request.param, claims_of_job=2)

    def test_each_claim_gets_its_own_instance_and_a_restart_finds_the_same(self, world):
        outcomes = world.launch("a", "b")
        assert len({outcome.provider_id for outcome in outcomes}) == 2
        world.restart()
        assert world.launch("a", "b") == outcomes
        assert world.cloud.sent == ["a+b:0"]

    def test_a_claim_that_a_call_brought_nothing_gets_the_shortage(self, world):
        world.cloud.capacity = 1
        first, second = world.launch("a", "b")
        assert isinstance(first, LaunchedInstance)
        assert isinstance(second, InsufficientCapacityError)

    def test_a_repetition_also_serves_claims_that_come_back_later(self, world):
        world.cloud.behaviour = ["request-lost"]
        world.launch("a", "b")
        assert isinstance(world.launch_one("a"), LaunchedInstance)
        assert isinstance(world.launch_one("b"), LaunchedInstance)
        assert world.cloud.sent == ["a+b:0", "a+b:0"]

    def test_a_partial_listing_of_an_open_call_does_not_assign_its_instances(self, world):
        """The instance with the least id, which a gets in the end, is shown last."""
        world.cloud.behaviour = ["reply-lost", "refused"]
        world.launch("a", "b")
        world.cloud.instances[0].launched_at += timedelta(hours=1)
        assert {type(each) for each in world.launch("a", "b")} == {CloudProviderError}
        first, second = world.launch("a", "b")
        assert (first.provider_id, second.provider_id) == ("i-0", "i-1")

    def test_a_listed_instance_outlasts_a_repetition_without_capacity(self, world):
        world.cloud.behaviour = ["reply-lost", "final"]
        world.cloud.capacity = 1
        world.launch("a", "b")
        first, second = world.launch("a", "b")
        assert isinstance(first, LaunchedInstance)
        assert isinstance(second, InsufficientCapacityError)

    def test_claims_wait_while_another_process_may_still_launch_for_them(self, world):
        tags = Call({"a": None, "b": None}, "other").tags
        world.cloud.add(tags, token="a")
        first, second = world.launch("a", "b")
        assert isinstance(first, LaunchedInstance)
        assert "another process" in str(second)
        world.clock.seconds += 119
        assert "another process" in str(world.launch("a", "b")[1])
        world.clock.seconds += 1
        assert isinstance(world.launch("a", "b")[1], LaunchedInstance)

    def test_other_launches_do_not_prolong_the_wait(self, world):
        world.cloud.add(Call({"a": None, "b": None}, "other").tags, token="a")
        world.launch("a", "b")
        for number in range(11):
            world.clock.seconds += 10
            world.launch(f"c{number}", f"d{number}")
        world.clock.seconds += 10
        assert isinstance(world.launch("a", "b")[1], LaunchedInstance)

    def test_claims_of_a_call_made_elsewhere_wait_for_each_of_its_instances(self, world):
        world.cloud.behaviour = ["elsewhere"]
        world.launch("a", "b")
        world.clock.seconds += SHOWN_SECONDS
        world.cloud.add(Call({"a": None, "b": None}, "other").tags, token="a")
        assert "another process recently" in str(world.launch("a", "b")[1])

    def test_two_launches_that_share_a_call_without_an_answer_repeat_it_once(self, world):
        """The other launch begins before the first one's repetition is answered."""
        world.cloud.behaviour = ["request-lost"]
        world.launch("a", "b")
        others = []
        world.cloud.during = [lambda: others.append(world.launch_one("a"))]
        outcome = world.launch_one("b")
        assert isinstance(outcome, LaunchedInstance)
        assert isinstance(others[0], LaunchedInstance)
        assert world.cloud.sent == ["a+b:0", "a+b:0"]
        assert world.cloud.claims() == {"a": 1, "b": 1}


def test_an_exhausted_repetition_is_judged_by_the_time_of_the_listing(world):
    """The listing was read too early to show the instance; the answer comes later."""
    world.cloud.delay_seconds = SHOWN_SECONDS - 1
    world.cloud.behaviour = ["reply-lost"]
    world.launch_one()
    world.clock.seconds += SHOWN_SECONDS - 2

    def wait_for_the_rate_limit():
        world.clock.seconds += 10
        return "exhausted"

    world.cloud.behaviour = [wait_for_the_rate_limit]
    assert type(world.launch_one()) is CloudProviderError


def test_a_young_claim_with_a_call_without_an_answer_is_searched_for():
    world = World(finds_claims=False, shown_seconds=5)
    world.launch_one("old")
    world.cloud.behaviour = ["reply-lost", "exhausted"]
    world.launch_one("young", created=world.clock.now())
    world.clock.seconds += 6
    assert isinstance(world.launch_one("young", created=START), LaunchedInstance)
    assert world.cloud.claims() == {"old": 1, "young": 1}


def test_an_instance_that_cannot_be_described_never_gives_its_claim_up(world):
    world.launch_one()
    world.restart()
    world.cloud.has_odd_types = True
    outcome = world.launch_one()
    assert type(outcome) is CloudProviderError
    assert "i-0 exists" in str(outcome)


def test_a_failure_after_a_launch_keeps_its_instance(world):
    world.cloud.cannot_record = True
    assert isinstance(world.launch_one("a"), LaunchedInstance)
    world.cloud.cannot_record, world.cloud.has_odd_types = False, True
    outcome = world.launch_one("b")
    assert type(outcome) is CloudProviderError
    world.cloud.has_odd_types = False
    assert isinstance(world.launch_one("b"), LaunchedInstance)
    assert world.cloud.claims() == {"a": 1, "b": 1}


@pytest.mark.parametrize("kind", [FailureKind.UNANSWERED, FailureKind.LAUNCHED_ELSEWHERE])
def test_a_failure_that_leaves_instances_possible_has_no_answer(kind):
    with pytest.raises(ValueError, match=kind.name):
        CallFailure(kind=kind, error=CloudProviderError("x"), answer=Answer())


ACCIDENTS = [
    "reply-lost", "request-lost", "unreadable", "refused", "other-form", "exhausted", "nothing",
]  # fmt: skip
NAMES = ["a", "b", "ab"]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("launch"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["", *ACCIDENTS]))
        ),
        st.tuples(st.just("wait"), st.integers(1, 200)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=25,
)


@given(
    steps=STEPS,
    finds_claims=st.booleans(),
    has_tokens=st.booleans(),
    claims_of_job=st.integers(1, 2),
    shown_seconds=st.sampled_from([5, SHOWN_SECONDS]),
    delay_fifths=st.integers(0, 4),
)
@with_examples(200)
def test_a_claim_never_has_two_instances(
    steps, finds_claims, has_tokens, claims_of_job, shown_seconds, delay_fifths
):
    """Whatever gets lost or is refused, and if the process restarts.

    A new process counts attempts anew: its tokens match those of the last process only if that had
    no answer, so it must see in the listing what the last one launched.
    """
    delay_seconds = shown_seconds * delay_fifths / 5
    world = World(
        finds_claims=finds_claims,
        delay_seconds=delay_seconds,
        claims_of_job=claims_of_job,
        shown_seconds=shown_seconds,
        has_tokens=has_tokens,
    )
    for step, value in steps:
        match step:
            case "launch":
                names, accident = value
                world.cloud.behaviour = [accident] if accident else []
                for name, outcome in zip(names, world.launch(*names), strict=True):
                    if isinstance(outcome, LaunchFailedError | InsufficientCapacityError):
                        assert not world.cloud.claims()[name], "the claim would be given up"
            case "wait":
                world.clock.seconds += value
            case _:
                world.clock.seconds += delay_seconds
                world.restart()
        assert all(number == 1 for number in world.cloud.claims().values())
    world.cloud.behaviour = []
    for _ in range(3):
        world.clock.seconds += 600
        world.launch("a", "b")
    assert world.cloud.claims() == {"a": 1, "b": 1}


SOLD_OUT = OfferingKey(instance_type="small", zone="b", capacity_type="on-demand")


@pytest.mark.parametrize(("offerings", "reported"), [((SOLD_OUT,), [(SOLD_OUT,)]), ((), [])])
def test_launched_instance_reports_the_shortages_of_earlier_calls(offerings, reported):
    """The core then plans no other pod with these offerings."""
    world = World()
    world.cloud.calls_of_job = 2
    world.cloud.behaviour = ["exhausted"]
    world.cloud.unserved_error = lambda _: InsufficientCapacityError("full", offerings=offerings)

    outcome = world.launch_one()

    assert isinstance(outcome, LaunchedInstance)
    assert [each.offerings for each in outcome.shortages] == reported


def test_one_instance_of_a_job_reports_its_shortages():
    """Each claim of a large job would report the same again."""
    world = World(claims_of_job=3)
    world.cloud.unserved_error = lambda _: InsufficientCapacityError("full", offerings=(SOLD_OUT,))

    outcomes = world.launch("web-1", "web-2", "web-3")

    assert [len(outcome.shortages) for outcome in outcomes] == [1, 0, 0]


@pytest.fixture(params=[True, False], ids=["finds-claims", "lists-all"])
def tokenless(request):
    """A process that has launched before: its first claims wait for those of an earlier process."""
    world = World(finds_claims=request.param, has_tokens=False)
    assert type(world.launch_one("first")) is CloudProviderError
    world.clock.seconds += SHOWN_SECONDS
    return world


def test_an_unanswered_call_is_looked_up_in_a_cloud_without_tokens(tokenless):
    """A repetition would launch a second instance."""
    tokenless.cloud.delay_seconds = SHOWN_SECONDS - 1
    tokenless.cloud.behaviour = ["reply-lost"]
    tokenless.launch_one()
    tokenless.clock.seconds += SHOWN_SECONDS - 2

    early = tokenless.launch_one()
    assert type(early) is CloudProviderError
    assert "is looked for" in str(early)

    tokenless.clock.seconds += 2
    found = tokenless.launch_one()
    assert isinstance(found, LaunchedInstance)
    assert tokenless.cloud.sent == ["a:0"]


def test_request_that_was_lost_is_sent_again_once_the_listing_would_show_it(tokenless):
    tokenless.cloud.behaviour = ["request-lost"]
    tokenless.launch_one()
    tokenless.clock.seconds += SHOWN_SECONDS - 1
    assert type(tokenless.launch_one()) is CloudProviderError

    tokenless.clock.seconds += 1
    assert isinstance(tokenless.launch_one(), LaunchedInstance)
    assert tokenless.cloud.sent == ["a:0", "a:0"], "the name stays, so that both cannot exist"
    assert tokenless.cloud.released == ["a:0"]


def test_a_new_process_waits_for_possible_launches_of_the_last_one(tokenless):
    """Only claims that are older than the process wait."""
    tokenless.cloud.delay_seconds = SHOWN_SECONDS - 1
    tokenless.launch_one()
    tokenless.clock.seconds += 1
    tokenless.restart()

    assert type(tokenless.launch_one()) is CloudProviderError
    new = tokenless.clock.now() + timedelta(seconds=1)
    assert isinstance(tokenless.launch_one("new", created=new), LaunchedInstance)

    tokenless.clock.seconds += SHOWN_SECONDS
    assert isinstance(tokenless.launch_one(), LaunchedInstance)
    assert tokenless.cloud.claims() == {"a": 1, "new": 1}
