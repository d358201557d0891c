"""Elects a leader by a Lease.

We use our own implementation instead of the client's, for three reasons: it uses the monotonic clock,
it releases the lease on shutdown (so that a rolling update does not wait for its expiry), and it knows
at any moment whether it holds the lease: the `LeaseFence` checks this before every write.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec
import structlog

from karpenter_core.errors import ApiError, ConflictError, FencedError, NotFoundError
from karpenter_core.kube.fence import LeaseFence
from karpenter_core.kube.pacing import time_limit
from karpenter_core.kube.resources import LEASES
from karpenter_core.kube.transport import NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import KubeApi

__all__ = [
    "LEASE_NAME",
    "ElectionTimes",
    "LeaseElector",
    "default_identity",
]

LEASE_NAME: Final = "karpenter-leader-election"  # upstream default

_REPORTED_SECONDS: Final = 1.0

_log = structlog.stdlib.get_logger("kube.lease")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTimes:
    """Duration of a lease and period of its renewals; client-go's defaults."""

    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        """Refuse times that could let two leaders overlap."""
        if not self.lease_seconds > self.renew_deadline_seconds > 1.2 * self.retry_seconds > 0:
            message = (
                "leader election needs lease > renew deadline > 1.2 * retry period, not "
                f"{self.lease_seconds}, {self.renew_deadline_seconds}, {self.retry_seconds}"
            )
            raise ValueError(message)


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int = 0


class _LeaseMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Lease(msgspec.Struct):
    metadata: _LeaseMeta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


_decoder: Final = msgspec.json.Decoder(_Lease)


class LeaseElector:
    """One candidate for a Lease. Give it an API client of its own, with no shared rate limit."""

    def __init__(
        self,
        api: KubeApi,
        *,
        clock: Clock,
        namespace: str,
        identity: str,
        name: str = LEASE_NAME,
        times: ElectionTimes | None = None,
        labels: Mapping[str, str] | None = None,
        jitter: Callable[[], float] | None = None,
        wait_until_fit: Callable[[], Awaitable[None]] | None = None,
        on_renewed: Callable[[float], None] | None = None,
    ) -> None:
        """`wait_until_fit` returns when this process may stand for election; a leader is not asked.

        `on_renewed` is called after each renewal with the seconds since the one before.
        """
        self._on_renewed: Final = on_renewed
        self._renewed_at: float | None = None
        self._wait_until_fit: Final = wait_until_fit
        self._api: Final = api
        self._clock: Final = clock
        self._namespace: Final = namespace
        self._identity: Final = identity
        self._name: Final = name
        self._times: Final = times or ElectionTimes()
        self._labels: Final = dict(labels or {})
        self._jitter: Final = jitter or random.Random().random  # noqa: S311 - spreads retries only
        self.fence: Final = LeaseFence(clock)
        self._lease: _Lease | None = None
        self._observed_at = 0.0

    @property
    def holder(self) -> str:
        """The holder of the lease at the last read."""
        return self._lease.spec.holder_identity if self._lease else ""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `work` while it is held, give it back at the end.

        `work` is cancelled as soon as the lease cannot be renewed in time. Cancelling this call
        cancels `work`, waits for its end, and only then releases the lease.

        Raises:
            FencedError: the lease was lost while `work` ran.
        """
        await self.acquire()
        task = asyncio.ensure_future(work())
        keeper = asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait({task, keeper}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await _end(task)
                keeper.result()
            await task
        finally:
            await _end(task)
            await _end(keeper)
            await self.release()

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        _log.info("waiting for the leader lease", lease=self._name, namespace=self._namespace)
        await self._stand_by_until_fit()
        while not await self._attempt(self._times.renew_deadline_seconds):
            spread = 1.0 + 1.2 * self._jitter()  # client-go's jitter factor
            await self._clock.sleep(self._times.retry_seconds * spread)
            await self._stand_by_until_fit()
        _log.info("became the leader", identity=self._identity)

    async def _stand_by_until_fit(self) -> None:
        if self._wait_until_fit is not None:
            await self._wait_until_fit()

    async def release(self) -> None:
        """Close the fence and, if the lease is ours, let the next one take it at once."""
        was_leader = self.fence.seconds_left > 0
        self.fence.close()
        self._renewed_at = None
        if not was_leader or self._lease is None:
            return
        spec = self._spec(held=False)
        try:
            async with time_limit(self._clock, self._times.retry_seconds):
                await self._write(spec)
        except (ApiError, TimeoutError) as error:
            _log.warning("could not release the leader lease; it will expire", error=str(error))
        else:
            _log.info("released the leader lease", identity=self._identity)

    async def _keep(self) -> None:
        """Renew until that fails for too long or another process holds the lease."""
        pause = self._times.retry_seconds
        # One request on a connection that is dead must leave time for another on a new one.
        most_seconds = (
            self._times.renew_deadline_seconds / 2
        )  # upstream default, of controller-runtime
        while True:
            await self._sleep(min(pause, self.fence.seconds_left))
            renewed = False
            if self.fence.seconds_left > 0:
                renewed = await self._attempt(min(self.fence.seconds_left, most_seconds))
            if self.holder != self._identity:
                self.fence.close()
                raise FencedError(f'the leader lease was taken over by "{self.holder}"')
            self.fence.check()
            # Time is short after a failure: the next attempts come closer together.
            pause = self._times.retry_seconds if renewed else self._times.retry_seconds / 4

    async def _sleep(self, seconds: float) -> None:
        """Sleep, and report if this process or its event loop stood still meanwhile.

        With as much CPU time as that it computed; with none it waited for a CPU, a disk or a lock.
        """
        due, cpu = self._clock.monotonic() + seconds, time.process_time()
        await self._clock.sleep(seconds)
        late = self._clock.monotonic() - due
        if late >= _REPORTED_SECONDS:
            _log.warning(
                "the renewal of the leader lease was begun late",
                late_seconds=round(late, 1),
                cpu_seconds=round(time.process_time() - cpu, 1),
            )

    async def _attempt(self, seconds: float) -> bool:
        """Try once to take or renew the lease within so many seconds; say if it is ours now."""
        try:
            async with time_limit(self._clock, seconds):
                return await self._take()
        except (ApiError, TimeoutError) as error:
            _log.warning("could not reach the leader lease", error=str(error) or "timed out")
            return False

    async def _take(self) -> bool:
        sent = self._clock.monotonic()
        ours = self._lease is not None and self.holder == self._identity
        if not ours:
            await self._observe()
            if not self._is_free():
                return False
        try:
            await self._write(self._spec(held=True))
        except (ConflictError, NotFoundError):
            # Another process wrote or deleted it, or the answer to our own last write was lost.
            await self._observe()
            if not self._is_free():
                return False
            sent = self._clock.monotonic()
            await self._write(self._spec(held=True))
        if self._renewed_at is not None and self._on_renewed is not None:
            self._on_renewed(sent - self._renewed_at)
        self._renewed_at = sent
        self.fence.open_until(sent + self._times.renew_deadline_seconds)
        return True

    async def _observe(self) -> None:
        """Read the lease; the time it must stay unchanged counts from here if it moved."""
        try:
            body = await self._api.get(LEASES, self._name, namespace=self._namespace)
        except NotFoundError:
            self._lease = None
            return
        lease = _read(body)
        if self._lease is None or lease.metadata != self._lease.metadata:
            self._observed_at = self._clock.monotonic()
        self._lease = lease

    def _is_free(self) -> bool:
        if self._lease is None or self.holder in {"", self._identity}:
            return True
        lasts = self._lease.spec.lease_duration_seconds or self._times.lease_seconds
        return self._clock.monotonic() >= self._observed_at + lasts

    async def _write(self, spec: Mapping[str, object]) -> None:
        if self._lease is None:
            manifest = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": self._name,
                    "namespace": self._namespace,
                    "labels": self._labels,
                },
                "spec": spec,
            }
            body = await self._api.create(LEASES, manifest, namespace=self._namespace)
        else:
            body = await self._api.patch(
                LEASES,
                self._name,
                {"metadata": {"labels": self._labels}, "spec": spec},
                namespace=self._namespace,
                resource_version=self._lease.metadata.resource_version,
            )
        self._lease = _read(body)
        self._observed_at = self._clock.monotonic()

    def _spec(self, *, held: bool) -> dict[str, object]:
        now = _micro_time(self._clock.now())
        if not held:
            return {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        spec: dict[str, object] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._times.lease_seconds),
            "renewTime": now,
        }
        if self.holder != self._identity:
            before = self._lease.spec.lease_transitions if self._lease else -1
            spec |= {"acquireTime": now, "leaseTransitions": before + 1}
        return spec


def _read(body: bytes) -> _Lease:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ApiError(f"the answer is no lease: {error}", status=0, reason=NO_ANSWER) from error


def default_identity(pod: str = "") -> str:
    """Return `<name of the pod>_<unique>`; without a name that of the host.

    It is the pod's too, unless the pod uses the network of the host.
    """
    return f"{pod or socket.gethostname()}_{uuid4()}"


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
