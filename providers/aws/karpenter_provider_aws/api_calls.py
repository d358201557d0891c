"""Makes the calls of botocore's clients by the call policy of the kit.

A client makes one attempt; `ApiCalls` repeats it, slows down the operation classes that AWS throttles, and
remembers that an attempt may have been carried out. It stands below the methods of a client, so that pages
of botocore's paginators are calls like all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final
from uuid import uuid4

from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.failures import (
    AttemptFailure,
    AttemptFailureKind,
    FailedCall,
    core_error,
)
from karpenter_core.provider.kit.calls.http_failures import parse_retry_after
from karpenter_core.provider.kit.calls.operation_limits import OperationLimits
from karpenter_provider_aws.answer_types import mistyped_values
from karpenter_provider_aws.codes import (
    api_failure,
    is_server_fault,
    is_throttled,
    is_timeout,
    is_unauthorized,
    needs_other_credentials,
)

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.model import OperationModel

    from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy

__all__ = [
    "ApiCalls",
    "CallObserver",
    "attempt_failure",
    "is_read",
    "is_repeatable",
    "launch_retries",
]

_READS: Final = ("Describe", "Get", "List", "Receive")
_IDEMPOTENT: Final = frozenset(
    {
        "ec2:CreateTags",
        "ec2:DeleteLaunchTemplate",
        "ec2:TerminateInstances",
        "iam:AddRoleToInstanceProfile",
        "iam:CreateInstanceProfile",
        "iam:DeleteInstanceProfile",
        "iam:RemoveRoleFromInstanceProfile",
        "sqs:DeleteMessageBatch",
    }
)
"""Writes that name what they change: a repetition changes nothing more, or is refused because it is done.
Their callers take "exists already" and "not found" for success."""
_MAY_BE_EMPTY: Final = frozenset({"sqs:ReceiveMessage"})
"""Reads whose answers may have no members: SQS leaves the list of no messages out."""
_LAUNCHES: Final = frozenset({"ec2:CreateFleet", "ec2:RunInstances"})
_FIRST_TURN_SECONDS: Final = 0.1
"""EC2 refills the buckets of most actions with 5 to 20 calls a second, and names no time to wait."""
_TOO_MANY_REQUESTS: Final = 429
_JSON: Final = "json"
"""End of the names of protocols (`json`, `rest-json`) whose types botocore does not convert."""
_NO_STATUS: Final = 0
_SENDS: Final = "_make_api_call"
"""The method of botocore's clients that makes a call; it has no public name."""

Answer: TypeAlias = "Mapping[str, Mapping[str, object]]"
Attempt: TypeAlias = Callable[[str, Mapping[str, object]], Answer]


class CallObserver(Protocol):
    """Counts and times calls; a status is that of HTTP, 0 for no answer."""

    def note_attempt(self, service: str, operation: str, status: int, seconds: float) -> None:
        """Record one attempt of a call."""
        ...

    def note_call(
        self, service: str, operation: str, status: int, seconds: float, *, retries: int
    ) -> None:
        """Record a call that has ended; `status` is that of its last attempt."""
        ...


def is_read(operation: str) -> bool:
    """Whether an operation (`DescribeSubnets`) changes nothing that an attempt more would change again.

    A received message is hidden for a while and comes again, whether its answer was lost or not.
    """
    return operation.startswith(_READS)


def is_repeatable(action: str, parameters: Mapping[str, object], *, has_token: bool) -> bool:
    """Whether a call (`ec2:CreateTags`) can be made again after it may have been carried out.

    It reads, has an idempotency token, is a dry run, or is one of the writes that are idempotent.
    """
    return (
        is_read(action.partition(":")[2])
        or has_token
        or action in _IDEMPOTENT
        or parameters.get("DryRun") is True
    )


def launch_retries(retries: RetryPolicy) -> RetryPolicy:
    """Return the policy of calls that launch: throttled ones alone are made again, for seconds.

    A launch without an answer is repeated by the launch state machine of the kit, which looks for its
    instances before. One hook may make several such calls, one after the other.
    """
    return replace(
        retries,
        transient_attempts=1,
        longest_backoff_seconds=min(retries.longest_backoff_seconds, 5),
        longest_call_seconds=min(retries.longest_call_seconds, 20),
    )


def attempt_failure(error: Exception) -> AttemptFailure | None:
    """Return what a failed attempt means for its call; None if it is no failure of a call.

    A connection that cannot be made counts as no answer, too. The SDK's own refusals (a parameter that
    AWS could not take) are refusals.
    """
    from botocore.exceptions import BotoCoreError, HTTPClientError
    from botocore.exceptions import ConnectionError as AwsConnectionError
    from botocore.parsers import ResponseParserError

    failure = api_failure(error)
    if failure is None:
        # A proxy's page instead of an answer is a ResponseParserError, which is no BotoCoreError.
        if isinstance(error, AwsConnectionError | HTTPClientError | ResponseParserError):
            return AttemptFailure(kind=AttemptFailureKind.UNANSWERED, message=str(error))
        if isinstance(error, BotoCoreError):
            return AttemptFailure(kind=AttemptFailureKind.REFUSED, message=str(error))
        return None
    if is_throttled(failure.code) or failure.status == _TOO_MANY_REQUESTS:
        kind = AttemptFailureKind.THROTTLED
    elif is_server_fault(failure) or is_timeout(failure.code):
        kind = AttemptFailureKind.UNANSWERED
    elif is_unauthorized(failure.code):
        kind = AttemptFailureKind.DENIED
    else:
        kind = AttemptFailureKind.REFUSED
    return AttemptFailure(
        kind=kind,
        code=failure.code,
        message=failure.message,
        retry_after=parse_retry_after(failure.retry_after),
    )


def _error_of(call: FailedCall) -> Exception:
    """Return what a call raises: the SDK's error, unless the policy knows more than its last attempt.

    Callers turn the SDK's errors into the core's (`core_errors_of`), by the codes that they expect.
    """
    is_uncertain = call.may_be_done and not is_read(call.action.partition(":")[2])
    if call.cause is not None and not is_uncertain:
        return call.cause
    return core_error(call)


@final
class ApiCalls:
    """The policy of all calls to AWS; callable from any thread."""

    def __init__(
        self,
        retries: RetryPolicy,
        *,
        observe: CallObserver | None,
        renew_credentials: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`retries` are those of calls that do not launch; see `launch_retries`.

        `renew_credentials` is called for each call that has no credentials, or whose credentials AWS
        refuses.
        """
        self._observe: Final = observe
        self._renew_credentials: Final = renew_credentials
        self._monotonic: Final = monotonic
        limits = OperationLimits(monotonic=monotonic, first_turn_seconds=_FIRST_TURN_SECONDS)

        def caller(policy: RetryPolicy) -> CloudCaller:
            return CloudCaller(
                attempt_failure,
                policy=policy,
                limits=limits,
                make_error=_error_of,
                sleep=sleep,
                monotonic=monotonic,
            )

        self._caller: Final = caller(retries)
        self._launch_caller: Final = caller(launch_retries(retries))

    def apply_to(self, client: BaseClient, service: str) -> None:
        """Have all calls of a client made by the policy; `service` is as in a policy's actions, `ec2`."""
        # All methods and paginators of a client end here; tracers of calls are put in the same place.
        vars(client).pop(_SENDS, None)  # of who had a shared client before
        attempt = cast("Attempt", getattr(client, _SENDS))

        def call(operation: str, parameters: Mapping[str, object]) -> Answer:
            return self._call(client, service, operation, parameters, attempt)

        setattr(client, _SENDS, call)

    def _call(
        self,
        client: BaseClient,
        service: str,
        operation: str,
        parameters: Mapping[str, object],
        attempt: Attempt,
    ) -> Answer:
        model: OperationModel = client.meta.service_model.operation_model(operation)
        # The SDK would give each attempt a token of its own.
        tokens = {name: str(uuid4()) for name in model.idempotent_members}
        request = {**tokens, **parameters}
        name, began, statuses = str(model.service_model.service_id), self._monotonic(), list[int]()
        action = f"{service}:{operation}"

        def send() -> Answer:
            started, status = self._monotonic(), _NO_STATUS
            try:
                answer = _readable(attempt, operation, request)
                status = _status(answer)
                _check_answer(answer, action, model)
            except Exception as error:
                failure = api_failure(error)
                status = _NO_STATUS if failure is None else failure.status
                if needs_other_credentials(error):
                    self._renew_credentials()
                raise
            else:
                return answer
            finally:
                statuses.append(status)
                if self._observe is not None:
                    seconds = self._monotonic() - started
                    self._observe.note_attempt(name, operation, status, seconds)

        caller = self._launch_caller if action in _LAUNCHES else self._caller
        try:
            return caller.call(
                send,
                action=action,
                # EC2 counts the calls of each action on their own (its guide on request throttling).
                operation_class=action,
                repeatable=is_repeatable(action, parameters, has_token=bool(tokens)),
            )
        finally:
            if self._observe is not None and statuses:
                seconds, retries = self._monotonic() - began, len(statuses) - 1
                self._observe.note_call(name, operation, statuses[-1], seconds, retries=retries)


def _readable(attempt: Attempt, operation: str, request: Mapping[str, object]) -> Answer:
    """Make an attempt; botocore raises errors of its parts for numbers, times and depths it cannot read.

    Raises:
        botocore.parsers.ResponseParserError: for an answer that cannot be read.
    """
    from botocore.exceptions import BotoCoreError
    from botocore.parsers import ResponseParserError

    try:
        return attempt(operation, request)
    except (ValueError, RecursionError) as error:
        if isinstance(error, BotoCoreError):
            raise
        raise ResponseParserError(f"the answer of {operation} cannot be read: {error}") from error


def _check_answer(answer: Answer, action: str, model: OperationModel) -> None:
    """Refuse an answer with values of other types, and one to a read or a launch without any member.

    botocore reads any well-formed XML as an answer, such as a proxy's page: a service did not send it.
    Services send empty lists.

    Raises:
        botocore.parsers.ResponseParserError: as for an answer that cannot be read.
    """
    from botocore.parsers import ResponseParserError

    if model.output_shape is not None and model.service_model.protocol.endswith(_JSON):
        mistyped = next(mistyped_values(model.output_shape, answer), "")
        if mistyped:
            raise ResponseParserError(f"{mistyped} in the answer of {model.name} has another type")
    if action in _MAY_BE_EMPTY or not (is_read(model.name) or action in _LAUNCHES):
        return
    members = frozenset(() if model.output_shape is None else model.output_shape.members)
    if members.isdisjoint(answer):
        raise ResponseParserError(f"the answer has nothing that {model.name} answers")


def _status(answer: Answer) -> int:
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", _NO_STATUS)
    return status if isinstance(status, int) else _NO_STATUS
