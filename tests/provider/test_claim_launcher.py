"""The launch state machine over a small cloud whose calls fail in every way."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

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
)
from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
from karpenter_core.provider.kit.launch.cloud import CallFailure, CloudTraits, FailureKind
from karpenter_core.provider.kit.launch.instance_claims import SingleClaims
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
class Machine:
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
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class Answer:
    """What a call launched."""

    instance_ids: tuple[str, ...] = ()


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
"""What calls come to, beside success, an answer without instances, and an unreadable answer."""


class Job:
    """One call for one request, and one more after a failure that asks for another form."""

    def __init__(self, request, calls=1):
        self.requests, self.rounds = (request,), []
        self.calls_left = calls

    def next_call(self, requests, attempts):
        if not self.calls_left:
            return None
        self.calls_left -= 1
        (request,) = requests
        if request.node_claim.name == "unreadable":
            raise BadInputError("user data cannot be read")
        count = attempts.get(request.token, 0)
        return Call({request.token: request}, f"{request.token}:{count}")

    def note_round(self, launch_round):
        self.rounds.append(launch_round)

    def error_without_call(self):
        return LaunchFailedError("no subnet")


class Cloud:
    """A cloud that answers a token always alike, and shows instances late."""

    def __init__(self, clock, *, delay_seconds=0.0):
        self.clock, self.delay_seconds = clock, delay_seconds
        self.machines = []
        self.behaviour = []
        """What the next calls do, the first first; the others succeed."""
        self.sent, self.released, self.recorded, self.listings = [], [], [], 0
        self.calls_of_job = 1
        self.is_blind = False

    def describe(self, _tokens):
        self.listings += 1
        if self.is_blind:
            raise CloudProviderError("no connection")
        return [
            machine
            for machine in self.machines
            if (self.clock.now() - machine.launched_at).total_seconds() >= self.delay_seconds
        ]

    def outcome_of_existing(self, request, machine):
        return launched(machine.id)

    def outcome_of_new(self, launch_round, instance_id, request):
        return launched(instance_id)

    def jobs(self, requests):
        if requests[0].node_class.name == "unready":
            raise CloudProviderError("the NodeClass is not ready")
        return [Job(request, self.calls_of_job) for request in requests], {}

    def send(self, call):
        self.sent.append(call.idempotency_token)
        behaviour = self.behaviour.pop(0) if self.behaviour else "success"
        if behaviour == "nothing" and call.idempotency_token in self._tokens():
            behaviour = "success"
        if behaviour in {"success", "reply-lost", "unreadable"}:
            instance_id = self._launch(call)
            if behaviour == "success":
                return Answer((instance_id,))
            if behaviour == "unreadable":
                raise KeyError("InstanceId")
        if behaviour == "nothing":
            return Answer()
        return FAILURES[behaviour]

    def record(self, launch_round):
        self.recorded.append(launch_round)

    def release(self, call):
        self.released.append(call.idempotency_token)

    def unserved_error(self, rounds):
        return InsufficientCapacityError(f"{len(rounds)} call(s) brought nothing")

    def _tokens(self):
        return {machine.tags["call"] for machine in self.machines}

    def _launch(self, call):
        for machine in self.machines:
            if machine.tags["call"] == call.idempotency_token:
                return machine.id
        (token,) = call.requests
        machine = Machine(
            id=f"i-{len(self.machines)}",
            token=token,
            launched_at=self.clock.now(),
            tags={"call": call.idempotency_token},
        )
        self.machines.append(machine)
        return machine.id


def launched(instance_id):
    return LaunchedInstance(
        provider_id=instance_id,
        instance_type="small",
        zone="a",
        capacity_type="on-demand",
        capacity={},
        allocatable={},
    )


def claim_of(machine):
    return ClaimRef(name=machine.token, uid=machine.token)


class World:
    """A cloud, and processes that launch in it."""

    def __init__(self, *, finds_claims=True, delay_seconds=0.0):
        self.clock = Clock()
        self.cloud = Cloud(self.clock, delay_seconds=delay_seconds)
        self.finds_claims = finds_claims
        self.restart()

    def restart(self):
        self.recent = RecentLaunches(self.clock)
        self.launcher = ClaimLauncher(
            self.clock,
            self.cloud,
            claims=SingleClaims(claim_of),
            recent=self.recent,
            traits=CloudTraits(
                name="Cloud",
                log_name="test.launch",
                bad_input_reason="InvalidNodeClass",
                finds_claims=self.finds_claims,
                shown_within=timedelta(seconds=SHOWN_SECONDS),
                made_within=timedelta(minutes=5),
                quiet_within=timedelta(minutes=2),
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
    assert [world.cloud.machines[int(o.provider_id[2:])].token for o in outcomes] == ["b", "a"]
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
    assert len(world.cloud.machines) == 1


def test_an_instance_that_the_listing_should_show_and_does_not_was_terminated(world):
    world.launch_one()
    world.cloud.machines.clear()
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
    world.cloud.machines[0].is_leaving = True
    assert world.launch_one().reason == "InstanceTerminated"


def test_nothing_is_sent_when_the_listing_cannot_be_read(world):
    world.cloud.is_blind = True
    with pytest.raises(CloudProviderError, match="no connection"):
        world.launch_one()
    assert not world.cloud.sent


def test_a_cloud_that_lists_everything_is_not_asked_for_new_claims():
    world = World(finds_claims=False)
    world.launch_one("a")
    world.launch_one("b", created=world.clock.now())
    assert world.cloud.listings == 1
    world.clock.seconds += 31
    world.launch_one("c", created=START)
    assert world.cloud.listings == 2


@pytest.mark.parametrize("loss", ["reply-lost", "request-lost", "unreadable"])
def test_a_call_without_an_answer_is_repeated_with_its_token(world, loss):
    world.cloud.delay_seconds = SHOWN_SECONDS - 1
    world.cloud.behaviour = [loss]
    outcome = world.launch_one()
    assert type(outcome) is CloudProviderError
    assert isinstance(world.launch_one(), LaunchedInstance)
    assert world.cloud.sent == ["a:0", "a:0"]
    assert len(world.cloud.machines) == 1
    assert not world.cloud.released, "addresses may be in use"


def test_the_outcome_of_a_repeated_call_is_kept_for_claims_that_come_later(world):
    world.cloud.behaviour = ["request-lost"]
    world.launch_one("a")
    assert isinstance(world.launch_one("b"), LaunchedInstance)
    assert isinstance(world.launch_one("a"), LaunchedInstance)
    assert world.cloud.sent == ["a:0", "b:0", "a:0"]


def test_a_refusal_releases_what_was_reserved_and_leaves_the_token(world):
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
    assert len(world.cloud.machines) == 1


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


def test_a_job_without_any_call_says_why(world):
    world.cloud.calls_of_job = 0
    assert str(world.launch_one()) == "no subnet"


def test_what_is_wrong_with_one_claim_or_node_class_spares_the_others(world):
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


ACCIDENTS = ["reply-lost", "request-lost", "unreadable", "refused", "exhausted", "nothing"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("launch"), st.sampled_from(["", *ACCIDENTS])),
        st.tuples(st.just("wait"), st.integers(1, 200)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=25,
)


@given(steps=STEPS, finds_claims=st.booleans(), delay_seconds=st.integers(0, SHOWN_SECONDS - 1))
@with_examples(200)
def test_a_claim_never_has_two_instances(steps, finds_claims, delay_seconds):
    """Whatever gets lost or is refused, and if the process restarts.

    A new process counts attempts anew: its tokens match those of the last process only if that had
    no answer, so it must see in the listing what the last one launched.
    """
    world = World(finds_claims=finds_claims, delay_seconds=delay_seconds)
    for step, value in steps:
        match step:
            case "launch":
                world.cloud.behaviour = [value] if value else []
                outcome = world.launch_one()
                if isinstance(outcome, LaunchFailedError | InsufficientCapacityError):
                    assert not world.cloud.machines, "the claim would be given up"
            case "wait":
                world.clock.seconds += value
            case _:
                world.clock.seconds += delay_seconds
                world.restart()
        assert len(world.cloud.machines) <= 1
    world.cloud.behaviour = []
    world.clock.seconds += 600
    world.launch_one()
    assert len(world.cloud.machines) == 1
