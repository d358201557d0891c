"""The loop around every controller: take a key, look at it, write what follows, sleep or retry.

What a controller decides is pure code elsewhere; what it shares with all others is here: bounded
concurrency, back-off, an id in every log line, and the one place where any exception is caught, so
that a broken object never stops the others from being served.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast, final

import structlog

from karpenter_core.controllers.journal import Journal
from karpenter_core.controllers.passes import PassHealth
from karpenter_core.controllers.throttling import ThrottleWaits
from karpenter_core.controllers.waiting import wait_or_woken
from karpenter_core.controllers.workqueue import Backoff, WorkQueue
from karpenter_core.errors import (
    ApiError,
    ConflictError,
    FencedError,
    KarpenterError,
    NodeClassNotReadyError,
    NotFoundError,
    ThrottledError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.controllers.metrics import Metrics

__all__ = ["DONE", "Controller", "IdSource", "Loop", "Outcome", "Reconciler", "Runtime"]

K = TypeVar("K", bound="Hashable")

DEFAULT_CONCURRENCY: Final = 64
CONFLICT_RETRY_SECONDS: Final = 0.05


class IdSource(Protocol):
    """Where ids of reconciles, decisions and commands come from; seeded in tests."""

    def __call__(self) -> str:
        """Return an id nobody else has."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What every controller needs of the process."""

    clock: Clock
    new_id: IdSource
    metrics: Metrics
    cpu_requests: int = 1000
    """CPU requests of the process in milli-cores; scales how much is done at once."""
    journal: Journal = field(default_factory=Journal)
    """Where decisions are put on record."""
    jitter: Callable[[], float] = field(default_factory=lambda: Random().random)  # noqa: S311 - spreads retries only
    """Draws from 0 to 1, by which retries of throttled calls are spread; seeded in tests."""
    passes: PassHealth = field(default_factory=PassHealth)
    """How many passes of each loop have failed in a row."""

    def workers(self, minimum: int, maximum: int) -> int:
        """Return how many keys are worked on at once: `minimum` on one core, `maximum` on 60."""
        cores = max(-(-self.cpu_requests // 1000), 1)
        scaled = int((maximum - minimum) / 59 * (cores - 1)) + minimum  # upstream's formula
        return max(minimum, min(scaled, maximum))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a look at a key asks for: nothing, or another look after a while.

    `back_off` asks for one after the key's back-off, as if it had failed.
    """

    requeue_after: float | None = None
    back_off: bool = False


DONE: Final = Outcome()


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
        reconcile: Callable[[K], Awaitable[Outcome]],
        *,
        runtime: Runtime,
        backoff: Backoff | None = None,
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
        """The keys that wait."""
        return self._queue

    def wake(self, key: K) -> None:
        """Look at a key soon."""
        self._queue.add(key)

    def wake_after(self, key: K, seconds: float) -> None:
        """Look at a key in a while, unless it is looked at sooner."""
        self._queue.add_after(key, seconds)

    async def run(self) -> None:
        """Work off keys until cancelled; at most `concurrency` at a time."""
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
            # Somebody else wrote first; what they wrote is on its way to us.
            self._queue.add_failed(key, at_least_seconds=CONFLICT_RETRY_SECONDS)
        except NotFoundError as error:
            # What was to be written is gone, and the watch is about to show it.
            self._log.info("gone meanwhile", error=str(error))
            self._queue.add_failed(key, at_least_seconds=CONFLICT_RETRY_SECONDS)
        except FencedError:
            self._log.info("write held back, this process does not lead")
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
        report(self._log, error, retry_seconds=wait)


@final
class Loop:
    """A controller without keys: one async function, again and again.

    The function returns how many seconds to wait (0 = at once); `wake` cuts the wait short.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[float]],
        *,
        runtime: Runtime,
        backoff: Backoff | None = None,
        is_vital: bool = True,
    ) -> None:
        """`is_vital`: the process is not ready while this fails again and again."""
        self._name = name
        self._step = step
        self._runtime = runtime
        self._streak = (runtime.passes if is_vital else PassHealth()).streak(name)
        self._backoff = backoff if backoff is not None else Backoff(base_seconds=1.0)
        self._woken = asyncio.Event()
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
                wait = await self._step()
                failures = 0
                throttles.forget(self._name)
                self._streak.succeeded()
            except FencedError:
                failures += 1
                wait = self._backoff.seconds(failures)
                self._log.info("work held back, this process does not lead")
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
                report(self._log, error, retry_seconds=wait)
            # A step that asks to run again at once still lets everybody else have a turn.
            await wait_or_woken(self._runtime.clock, wait, self._woken)


def report(log: FilteringBoundLogger, error: Exception, *, retry_seconds: float) -> None:
    """Log a failure: expected ones as a line, unexpected ones with what leads to the cause."""
    if isinstance(error, ApiError) and not isinstance(error, NotFoundError) and error.status == 0:
        log.warning("API server did not answer", error=str(error), retry_seconds=retry_seconds)
        return
    if isinstance(error, ThrottledError):
        log.info("waiting for a rate limit", error=str(error), retry_seconds=retry_seconds)
        return
    if isinstance(error, NodeClassNotReadyError):  # its conditions say what is to be mended
        log.info("waiting for a NodeClass", error=str(error), retry_seconds=retry_seconds)
        return
    log.error(
        "reconcile failed",
        error=str(error) or type(error).__name__,
        error_type=type(error).__name__,
        retry_seconds=retry_seconds,
        # What we raise on purpose says what is wrong; of a bug the path to it is wanted.
        exc_info=None if isinstance(error, KarpenterError) else error,
    )


def _key_text(key: Hashable) -> str:
    """Return a key as a log line shows it: the parts of a NodeClass' key as a path."""
    return (
        "/".join(map(str, cast("tuple[object, ...]", key))) if isinstance(key, tuple) else str(key)
    )
