"""Declares what a cloud supplies to the launch state machine.

A cloud describes existing instances, makes and sends calls, and classifies their failures.
`ClaimLauncher` does the rest: it finds what exists, repeats calls without an answer, assigns instances
to claims and remembers what was launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest

__all__ = [
    "AnsweredCall",
    "CallFailure",
    "CloudTraits",
    "DescribedInstance",
    "FailureKind",
    "InstanceAnswer",
    "LaunchCall",
    "LaunchCloud",
    "LaunchJob",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CloudTraits:
    """Traits of a cloud: limits of its calls and searches, and delays until it shows new instances."""

    name: str
    """The name of its instance service, for messages."""
    log_name: str
    """The name of its logger."""
    bad_input_reason: str
    """The reason of a launch failure whose cause is the text of a NodeClass."""
    finds_claims: bool
    """Whether instances of a claim can be searched for; else all of the cluster are listed."""
    shown_within: timedelta
    """Longest time from the answer of a call until its instances are shown."""
    made_within: timedelta = timedelta(minutes=5)
    """Longest time from the launch of a call's newest instance until all its instances are shown."""
    quiet_within: timedelta = timedelta(minutes=2)
    """If a call shows no further instance for this long, it brought fewer than it has claims. Shorter
    than the launch timeout, so that its other claims report the shortage."""
    repeats_calls: bool = True
    """Whether a call without an answer may be repeated, because its token launches once. Without
    tokens its instances are looked up: `LaunchCloud.describe` must find them by name or tag within
    `shown_within` after the call; the claim is launched again only if there is none by then."""
    calls_at_once: int = 8
    """Largest number of concurrent jobs of one launch."""


class DescribedInstance(Protocol):
    """An instance as the cloud's listing shows it."""

    @property
    def id(self) -> str:
        """Its id in the cloud."""
        ...

    @property
    def launched_at(self) -> datetime | None:
        """Time of its launch; None where the cloud does not say."""
        ...

    @property
    def is_leaving(self) -> bool:
        """Whether it is terminating or terminated."""
        ...


class LaunchCall(Protocol):
    """A call as it was made, to be read with its answer, and repeated if none comes."""

    @property
    def requests(self) -> Mapping[str, LaunchRequest]:
        """The requests that it launches an instance for, by token."""
        ...


class InstanceAnswer(Protocol):
    """The answer to a call, with whatever else the cloud keeps of it."""

    @property
    def instance_ids(self) -> Sequence[str]:
        """Ids of the launched instances."""
        ...

    @property
    def reference(self) -> str:
        """The id by which the cloud finds the call again; empty for none."""
        ...


Described = TypeVar("Described", bound=DescribedInstance)
Call = TypeVar("Call", bound=LaunchCall)
Answer = TypeVar("Answer", bound=InstanceAnswer)


class FailureKind(Enum):
    """Consequence of a failure for this attempt and for earlier attempts with its token."""

    UNANSWERED = auto()
    """This attempt may have been carried out."""
    REFUSED = auto()
    """This attempt was not carried out; earlier ones may have been."""
    EXHAUSTED = auto()
    """This attempt was not carried out, and an earlier one may be the reason: its instances use up
    capacity. Earlier ones were not either, once the cloud would show their instances."""
    FINAL = auto()
    """No attempt was carried out."""
    LAUNCHED_ELSEWHERE = auto()
    """Another process has used the token: it may have launched for these claims."""


_WITH_ANSWER: Final = frozenset({FailureKind.REFUSED, FailureKind.EXHAUSTED, FailureKind.FINAL})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailure(Generic[Answer]):
    """A call that the cloud refused or did not answer."""

    kind: FailureKind
    error: CloudProviderError
    """The outcome of the call's claims, if no attempt was carried out."""
    answer: Answer | None = None
    """The failure, read as an answer that brought nothing: the job may make another call. Required for
    EXHAUSTED and FINAL, allowed for REFUSED."""
    needs_other_form: bool = False
    """Whether the job's next call has another form, which the cloud may accept. Of REFUSED alone."""

    def __post_init__(self) -> None:
        """Check that kind and answer belong together.

        Raises:
            ValueError: they do not.
        """
        if self.answer is not None and self.kind not in _WITH_ANSWER:
            raise ValueError(f"a call that is {self.kind.name} has no answer")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall(Generic[Call, Answer]):
    """A call and its answer."""

    call: Call
    answer: Answer


class LaunchJob(Protocol[Call, Answer]):
    """Claims that fit into one call, and what was tried for them so far."""

    @property
    def requests(self) -> Sequence[LaunchRequest]:
        """The requests to launch for."""
        ...

    def next_call(
        self, requests: Sequence[LaunchRequest], attempts: Mapping[str, int]
    ) -> Call | None:
        """Return a call for the requests that have no instance yet; None when nothing is left to try.

        `attempts` counts by token the earlier calls that were answered and brought nothing; the
        idempotency token of the call must differ from theirs. After a failure with
        `needs_other_form` it must return another call, or None.

        Raises:
            BadInputError, CloudProviderError: no call can be made.
        """
        ...

    def note_answer(self, answered: AnsweredCall[Call, Answer]) -> None:
        """Take an answer into account before the next call is made. Must not raise."""
        ...

    def error_without_call(self) -> CloudProviderError:
        """Return the outcome of claims for which no call could be made."""
        ...


class LaunchCloud(Protocol[Described, Call, Answer]):
    """A cloud that launches instances; callable from any thread."""

    def describe(self, tokens: Sequence[str], /) -> Sequence[Described]:
        """Return the instances of these claims, and all others of the calls that launched them.

        Further instances may be among them. Terminated ones must be, for as long as the cloud lists
        them: a claim whose instance is gone gets no other one.

        Raises:
            CloudProviderError: they could not be read, or not all of them.
        """
        ...

    def outcome_of_existing(self, request: LaunchRequest, instance: Described) -> LaunchedInstance:
        """Return the outcome of a claim whose instance exists.

        Raises:
            BadInputError, CloudProviderError: it cannot be described. The claim gets a plain
                CloudProviderError, since it has an instance.
        """
        ...

    def outcome_of_new(
        self, answered: AnsweredCall[Call, Answer], instance_id: str, request: LaunchRequest
    ) -> LaunchedInstance:
        """Return the outcome of a claim for which a call has just launched an instance.

        Must not raise: the instance exists.
        """
        ...

    def jobs(
        self, requests: Sequence[LaunchRequest]
    ) -> tuple[Sequence[LaunchJob[Call, Answer]], Mapping[str, CloudProviderError]]:
        """Return the launches for claims of one NodeClass, and by token why some cannot be.

        Raises:
            BadInputError, CloudProviderError: nothing can be launched from this NodeClass.
        """
        ...

    def send(self, call: Call) -> Answer | CallFailure[Answer]:
        """Make a call.

        If the client repeats it by itself, classify the failure by all attempts. Never raises for a
        refusal; any exception counts as UNANSWERED. A cloud without idempotency tokens
        (`CloudTraits.repeats_calls` False) gives an instance a name made of its claim's UID and
        attempts. If it refuses a name that exists, that is the answer: the instance of that name.
        """
        ...

    def record(self, answered: AnsweredCall[Call, Answer]) -> None:
        """Record used and exhausted capacity for later catalogues and launches. Must not raise."""
        ...

    def release(self, call: Call) -> None:
        """Release what a call that launched nothing has reserved (addresses). Must not raise."""
        ...

    def unserved_error(self, answered: Sequence[AnsweredCall[Call, Answer]]) -> CloudProviderError:
        """Return the outcome of claims that none of these calls brought an instance.

        If all claims have one, an InsufficientCapacityError is what the calls found sold out on their
        way; other errors are ignored then.
        """
        ...
