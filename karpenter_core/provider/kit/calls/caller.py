"""Makes calls with any client: retries, pauses and measures them.

A client is a plain function that makes one attempt: a method of an SDK whose own retries are off, or a
request of an HTTP library. A cloud supplies `classify`, which reads the failures of its client.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

from karpenter_core.provider.kit.calls.failures import (
    AttemptFailure,
    AttemptFailureKind,
    FailedCall,
    core_error,
)
from karpenter_core.provider.kit.calls.operation_limits import OperationLimits
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OK", "UNANSWERED", "AttemptObserver", "CloudCaller"]

OK: Final = "OK"
UNANSWERED: Final = "NoAnswer"
"""The result of an attempt without an answer, for the observer."""

AttemptObserver: TypeAlias = "Callable[[str, str, float], None]"
"""Receives each attempt: the action, its result (`OK`, the code of the error, or `NoAnswer`), and its
duration in seconds. Called from any thread."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _OpenCall:
    """One call between its attempts."""

    action: str
    operation_class: str
    repeatable: bool
    began_at: float
    failures: Counter[AttemptFailureKind] = field(default_factory=Counter[AttemptFailureKind])
    may_be_done: bool = False
    waited_until: float = -inf
    """The end of the last pause that was waited for, by the monotonic clock."""
    turn_at: float = -inf
    """Time at which the next attempt got its turn, or needed none: a slower pace since then is not for it."""

    def failed(self, failure: AttemptFailure, cause: Exception | None = None) -> FailedCall:
        return FailedCall(
            action=self.action, failure=failure, may_be_done=self.may_be_done, cause=cause
        )


@final
class CloudCaller:
    """Makes the calls to one cloud; callable from any thread."""

    def __init__(
        self,
        classify: Callable[[Exception], AttemptFailure | None],
        *,
        policy: RetryPolicy | None = None,
        limits: OperationLimits | None = None,
        make_error: Callable[[FailedCall], Exception] = core_error,
        observe: AttemptObserver | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`classify` returns None for an exception that is not a failed call, which is raised as it is.

        `make_error` returns the exception for a call that failed. `limits` may be shared by callers
        whose calls the cloud counts together.
        """
        self._classify: Final = classify
        self._policy: Final = policy or RetryPolicy()
        self._limits: Final = limits or OperationLimits(monotonic=monotonic)
        self._make_error: Final = make_error
        self._observe: Final = observe
        self._sleep: Final = sleep
        self._monotonic: Final = monotonic

    def call(
        self,
        attempt: Callable[[], T],
        *,
        action: str,
        operation_class: str = "",
        repeatable: bool = True,
    ) -> T:
        """Return the result of `attempt`, which is called again after failures that allow it.

        `repeatable` says that the call can be made again after it may have been carried out: it reads, it
        is idempotent, or it has an idempotency token. A throttled call is always made again.

        Raises:
            CloudProviderError: the call failed; or what `make_error` returns.
        """
        call = _OpenCall(
            action=action,
            operation_class=operation_class,
            repeatable=repeatable,
            began_at=self._monotonic(),
        )
        while True:
            self._wait_for_turn(call)
            started = self._monotonic()
            try:
                result = attempt()
            except Exception as error:
                failure = self._classify(error)
                if failure is None:
                    raise
                self._note(action, failure.code or UNANSWERED, started)
                if not failure.may_be_done and failure.kind is not AttemptFailureKind.THROTTLED:
                    self._limits.note_answer(operation_class)
                wait = self._wait_after(call, failure)
                if wait is None:
                    raised = self._make_error(call.failed(failure, error))
                    if raised is error:
                        raise
                    raise raised from error
            else:
                self._note(action, OK, started)
                self._limits.note_answer(operation_class)
                return result
            self._sleep(wait)

    def _wait_for_turn(self, call: _OpenCall) -> None:
        """Wait for the pause and the rate of the operation class.

        Raises:
            Exception: of `make_error`; the wait would be longer than the policy permits.
        """
        self._wait_for_pause(call)
        longest = self._longest_wait(call)
        wait = self._limits.reserve(call.operation_class, longest_seconds=longest)
        if wait > longest:
            raise self._not_sent(call, f"the rate of {call.operation_class} calls is used up", wait)
        if wait > 0:
            self._sleep(wait)
            self._wait_for_pause(call)
        while (wait := self._take_turn(call)) > 0:
            self._sleep(wait)
            if not self._wait_for_pause(call):
                return
            # A pause began during the wait, and the turn is over: another one follows the pause.

    def _take_turn(self, call: _OpenCall) -> float:
        longest = self._longest_wait(call)
        call.turn_at = self._monotonic()
        wait = self._limits.take_turn(call.operation_class, longest_seconds=longest)
        if wait > longest:
            text = f"calls of {call.operation_class} take turns after a refusal"
            raise self._not_sent(call, text, wait)
        return wait

    def _wait_for_pause(self, call: _OpenCall) -> bool:
        """Wait for the end of a pause that was not waited for; return whether there was one."""
        waited = False
        while (
            pause := self._limits.open_pause(call.operation_class)
        ) is not None and pause.ends_at > call.waited_until:
            # All calls of the class wait for the same end, and must not be sent together.
            spread = random.random() * self._policy.first_backoff_seconds  # noqa: S311
            wait = max(0.0, pause.ends_at - self._monotonic())
            if wait + spread > self._longest_wait(call):
                raise self._not_sent(call, f"paused after {pause.failure.text}", wait)
            call.waited_until, waited = pause.ends_at, True
            self._sleep(wait + spread)
        return waited

    def _longest_wait(self, call: _OpenCall) -> float:
        """Return the longest wait that leaves the next attempt within the time of the call."""
        elapsed = self._monotonic() - call.began_at
        policy = self._policy
        return max(0.0, min(policy.longest_backoff_seconds, policy.longest_call_seconds - elapsed))

    def _not_sent(self, call: _OpenCall, message: str, seconds: float) -> Exception:
        failure = AttemptFailure(
            kind=AttemptFailureKind.THROTTLED,
            message=f"not sent: {message}",
            retry_after=timedelta(seconds=seconds),
        )
        return self._make_error(call.failed(failure))

    def _wait_after(self, call: _OpenCall, failure: AttemptFailure) -> float | None:
        """Return the time to wait after a failed attempt; None to give up."""
        call.may_be_done = call.may_be_done or failure.may_be_done
        call.failures[failure.kind] += 1
        if failure.kind is AttemptFailureKind.THROTTLED:
            call.waited_until = self._limits.pause(
                call.operation_class, failure, turn_at=call.turn_at
            )
        wait = self._policy.wait_seconds(
            failure,
            attempt=call.failures[failure.kind],
            repeatable=call.repeatable,
            draw=random.random(),  # noqa: S311 - spreads attempts; nothing is kept secret by it
        )
        elapsed = self._monotonic() - call.began_at
        if wait is None or elapsed + wait > self._policy.longest_call_seconds:
            return None
        return wait

    def _note(self, action: str, result: str, started: float) -> None:
        if self._observe is not None:
            self._observe(action, result, self._monotonic() - started)
