"""Runs controllers: keyed reconcilers with a work queue, and periodic loops.

Controllers decide by pure functions elsewhere; this module has what they share: bounded concurrency,
back-off, an id in every log line, and the only place that catches every exception, so that a broken
object never stops the work on others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast, final

import structlog

from karpenter_core.controllers.reconciling.decision_journal import DecisionJournal
from karpenter_core.controllers.reconciling.passes import PassHealth
from karpenter_core.controllers.reconciling.throttling import ThrottleWaits
from karpenter_core.controllers.reconciling.wake_signal import WakeSignal
from karpenter_core.controllers.reconciling.workqueue import ExponentialBackoff, WorkQueue
from karpenter_core.errors import (
    ApiError,
    ConflictError,
    FencedError,
    KarpenterError,
    NodeClassNotReadyError,
    NotFoundError,
    ThrottledError,
)
from karpenter_core.tracing import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.tracing import Tracer

__all__ = [
    "DONE",
    "Controller",
    "ControllerRuntime",
    "IdSource",
    "PeriodicLoop",
    "ReconcileResult",
    "Reconciler",
    "log_failure",
]

K = TypeVar("K", bound="Hashable")

DEFAULT_CONCURRENCY: Final = 64
CONFLICT_RETRY_SECONDS: Final = 0.05


class IdSource(Protocol):
    """Generates ids of reconciles, decisions and commands; seeded in tests."""

    def __call__(self) -> str:
        """Return a unique id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRuntime:
    """The services of the process that every controller uses."""

    clock: Clock
    new_id: IdSource
    metrics: Metrics
    cpu_requests: int = 1000
    """CPU requests of the process in milli-cores; scales the concurrency."""
    journal: DecisionJournal = field(default_factory=DecisionJournal)
    """The journal of decisions."""
    jitter: Callable[[], float] = field(default_factory=lambda: Random().random)  # noqa: S311 - spreads retries only
    """Random numbers from 0 to 1 that spread retries of throttled calls; seeded in tests."""
    tracer: Tracer = NO_TRACER
    passes: PassHealth = field(default_factory=PassHealth)
    """The failed passes in a row of each loop."""

    def workers(self, minimum: int, maximum: int) -> int:
        """Return how many keys are reconciled at once: `minimum` on one core, `maximum` on 60."""
        cores = max(-(-self.cpu_requests // 1000), 1)
        scaled = int((maximum - minimum) / 59 * (cores - 1)) + minimum  # upstream's formula
        return max(minimum, min(scaled, maximum))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """The result of a reconcile: nothing more, or another reconcile after some seconds.

    `back_off` requests one after the key's back-off, as if it had failed.
    """

    requeue_after: float | None = None
    back_off: bool = False


DONE: Final = ReconcileResult()


class Controller(Protocol):
    """Something that runs until it is cancelled."""

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        ...

    async def run(self) -> None:
        """Run until cancelled."""
        ...


@final
class Reconciler(Generic[K]):
    """A keyed controller: an async function, run for every key that was woken."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[ReconcileResult]],
        *,
        runtime: ControllerRuntime,
        backoff: ExponentialBackoff | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        log_field: str = "name",
    ) -> None:
        self._name = name
        self._reconcile = reconcile
        self._runtime = runtime
        self._queue: WorkQueue[K] = WorkQueue(runtime.clock, backoff=backoff)
        self._throttles: ThrottleWaits[K] = ThrottleWaits(runtime.jitter)
        self._concurrency = concurrency
        self._log_field = log_field
        self._log: FilteringBoundLogger = structlog.get_logger(name)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return self._name

    @property
    def queue(self) -> WorkQueue[K]:
        """The queue of keys."""
        return self._queue

    def wake(self, key: K) -> None:
        """Reconcile a key soon."""
        self._queue.add(key)

    def wake_after(self, key: K, seconds: float) -> None:
        """Reconcile a key after some seconds, unless it is reconciled sooner."""
        self._queue.add_after(key, seconds)

    async def run(self) -> None:
        """Reconcile keys until cancelled, at most `concurrency` at a time."""
        slots = asyncio.Semaphore(self._concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await slots.acquire()
                    key = await self._queue.take()
                    task = group.create_task(self._work(key))
                    task.add_done_callback(lambda _: slots.release())
        finally:
            self._queue.close()

    async def _work(self, key: K) -> None:
        structlog.contextvars.bind_contextvars(
            controller=self._name,
            reconcileID=self._runtime.new_id(),
            **{self._log_field: _key_text(key)},
        )
        try:
            outcome = await self._reconcile(key)
        except ConflictError:
            # Another writer was faster; the watch is about to show its change.
            self._queue.add_failed(key, at_least_seconds=CONFLICT_RETRY_SECONDS)
        except NotFoundError as error:
            # The object is gone, and the watch is about to show it.
            self._log.info("object is gone, reconcile is retried", error=str(error))
            self._queue.add_failed(key, at_least_seconds=CONFLICT_RETRY_SECONDS)
        except FencedError:
            self._log.info("write skipped, this process is not the leader")
            self._queue.add_failed(key)
        except Exception as error:
            self._failed(key, error)
        else:
            if outcome.back_off:
                self._queue.add_failed(key)
                return
            self._queue.forget(key)
            self._throttles.forget(key)
            if outcome.requeue_after is not None:
                self._queue.add_after(key, outcome.requeue_after)
        finally:
            self._queue.done(key)

    def _failed(self, key: K, error: Exception) -> None:
        self._runtime.metrics.reconcile_errors.labels(controller=self._name).inc()
        wait = self._throttles.seconds(key, error)
        if wait is None:
            wait = self._queue.add_failed(key)
        else:
            self._queue.add_after(key, wait)
        log_failure(self._log, error, retry_seconds=wait)


@final
class PeriodicLoop:
    """A controller without keys: runs one async function again and again.

    The function returns the seconds to wait (0 = none); `wake` ends the wait early.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], Awaitable[float]],
        *,
        runtime: ControllerRuntime,
        backoff: ExponentialBackoff | None = None,
        is_vital: bool = True,
    ) -> None:
        """With `is_vital`, the process is not ready while this loop keeps failing."""
        self._name = name
        self._function = function
        self._runtime = runtime
        self._streak = (runtime.passes if is_vital else PassHealth()).streak(name)
        self._backoff = backoff if backoff is not None else ExponentialBackoff(base_seconds=1.0)
        self._woken = WakeSignal()
        self._log: FilteringBoundLogger = structlog.get_logger(name)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return self._name

    def wake(self) -> None:
        """Run the function again without waiting."""
        self._woken.set()

    async def run(self) -> None:
        """Run the function until cancelled."""
        failures = 0
        throttles: ThrottleWaits[str] = ThrottleWaits(self._runtime.jitter)
        while True:
            self._woken.clear()
            structlog.contextvars.bind_contextvars(
                controller=self._name,
                reconcileID=self._runtime.new_id(),
            )
            try:
                wait = await self._function()
                failures = 0
                throttles.forget(self._name)
                self._streak.succeeded()
            except FencedError:
                failures += 1
                wait = self._backoff.seconds(failures)
                self._log.info("pass skipped, this process is not the leader")
            except Exception as error:
                throttled = throttles.seconds(self._name, error)
                if throttled is None:
                    failures += 1
                    wait = self._backoff.seconds(failures)
                    if not isinstance(error, NodeClassNotReadyError):
                        self._streak.failed(error)
                else:
                    wait = throttled
                    self._streak.throttled(error)
                self._runtime.metrics.reconcile_errors.labels(controller=self._name).inc()
                log_failure(self._log, error, retry_seconds=wait)
            # A function that asks to run again at once still lets other tasks run.
            await self._woken.wait_for(self._runtime.clock, wait)


def log_failure(log: FilteringBoundLogger, error: Exception, *, retry_seconds: float) -> None:
    """Log a failure: expected errors as one line, unexpected ones with a traceback."""
    if isinstance(error, ApiError) and error.status == 0:
        log.warning("API server did not answer", error=str(error), retry_seconds=retry_seconds)
        return
    if isinstance(error, ThrottledError):
        log.info("waiting for a rate limit", error=str(error), retry_seconds=retry_seconds)
        return
    if isinstance(error, NodeClassNotReadyError):  # its conditions have the reason
        log.info("waiting for a NodeClass", error=str(error), retry_seconds=retry_seconds)
        return
    log.error(
        "reconcile failed",
        error=str(error) or type(error).__name__,
        error_type=type(error).__name__,
        retry_seconds=retry_seconds,
        # Errors raised on purpose explain themselves; a bug needs its traceback.
        exc_info=None if isinstance(error, KarpenterError) else error,
    )


def _key_text(key: Hashable) -> str:
    """Return a key as a log line shows it: the parts of a NodeClass' key as a path."""
    return (
        "/".join(map(str, cast("tuple[object, ...]", key))) if isinstance(key, tuple) else str(key)
    )
