"""Starts, syncs and stops all informers of a process together."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.contact import ContactTimes, StaleKind
from karpenter_core.kube.informer import Informer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.informer import Sink
    from karpenter_core.kube.metrics import KubeMetrics
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.kube.wire.kind_codec import InvalidObject
    from karpenter_core.state.events import StateObject

__all__ = ["Informers"]

MISSING_KIND_SECONDS: Final = 30.0
"""Time between two checks for an optional kind that is not served."""


class Informers:
    """One informer for each kind that the codecs can read, at the API server that keeps it."""

    def __init__(
        self,
        apis: ClusterApis,
        codecs: Codecs,
        *,
        clock: Clock,
        sink: Sink,
        metrics: KubeMetrics | None = None,
        on_invalid: Callable[[InvalidObject], None] | None = None,
        jitter: Callable[[], float] | None = None,
        kinds: Iterable[ResourceKind] | None = None,
        watch_list: bool = True,
        times: ContactTimes | None = None,
        optional: Iterable[ResourceKind] = (),
    ) -> None:
        """Nothing waits for kinds that are `optional` and not served."""
        self._apis: Final = apis
        self._clock: Final = clock
        self._optional: Final = frozenset(optional)
        self._missing: Final[set[ResourceKind]] = set()
        self._log: FilteringBoundLogger = structlog.get_logger("kube.informer")
        self.times: Final = times or ContactTimes()
        self._on_fresh: list[Callable[[ResourceKind], None]] = []
        self._informers: Final = {
            kind: Informer(
                kind,
                codecs.for_kind(kind),
                apis.api_for(kind),
                clock=clock,
                sink=sink,
                metrics=metrics,
                on_invalid=on_invalid,
                jitter=jitter,
                watch_list=watch_list,
                times=self.times,
                on_fresh=partial(self._notify_fresh, kind),
            )
            for kind in (codecs.kinds if kinds is None else kinds)
        }

    def __getitem__(self, kind: ResourceKind) -> Informer:
        """Return a kind's informer."""
        return self._informers[kind]

    def note_written(self, kind: ResourceKind, written: StateObject) -> None:
        """Record the response to one of our writes; kinds without an informer are ignored."""
        informer = self._informers.get(kind)
        if informer is not None:
            informer.note_written(written)

    @property
    def synced(self) -> bool:
        """Whether every kind has been listed once."""
        return not self.unsynced

    @property
    def unsynced(self) -> tuple[ResourceKind, ...]:
        """The kinds that have not been listed yet."""
        return tuple(
            kind for kind, informer in self._informers.items() if not informer.synced.is_set()
        )

    @property
    def ages(self) -> dict[ResourceKind, float | None]:
        """Time since the last list, event or bookmark of each kind; None before the first list."""
        return {kind: informer.age_seconds for kind, informer in self._informers.items()}

    def is_served(self, kind: ResourceKind) -> bool:
        """Return whether a kind is followed: its objects are known if it is synced."""
        return kind not in self._missing

    def stale(self) -> tuple[StaleKind, ...]:
        """Return the kinds whose last contact is too long ago."""
        return tuple(
            StaleKind(kind=kind, seconds=informer.age_seconds, problem=informer.problem)
            for kind, informer in self._informers.items()
            if not informer.is_fresh and kind not in self._missing
        )

    def lost(self) -> tuple[StaleKind, ...]:
        """Return the kinds whose list or watch has failed and not yet recovered, and the stale ones.

        A kind that is lost is stale only after a while.
        """
        return tuple(
            StaleKind(kind=kind, seconds=informer.age_seconds, problem=informer.problem)
            for kind, informer in self._informers.items()
            if (informer.problem or not informer.is_fresh) and kind not in self._missing
        )

    def subscribe_fresh(self, listener: Callable[[ResourceKind], None]) -> None:
        """Call `listener` with every kind that is fresh again; it must not block."""
        self._on_fresh.append(listener)

    def _notify_fresh(self, kind: ResourceKind) -> None:
        for listener in self._on_fresh:
            listener(kind)

    async def run(self) -> None:
        """Follow every kind until cancelled; ends when all streams are closed."""
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                following = self._follow(kind, informer)
                group.create_task(following, name=f"informer:{kind.plural}")

    async def _follow(self, kind: ResourceKind, informer: Informer) -> None:
        """Follow a kind; an optional one from the moment it is served."""
        if kind in self._optional:
            while not await self._find(kind):
                if kind not in self._missing:
                    self._log.warning(
                        f"{kind.plural}.{kind.group} is not installed, so that nothing is done for "
                        f"this kind; install its CustomResourceDefinition, or turn the option off"
                    )
                    self._missing.add(kind)
                    informer.synced.set()
                    informer.hide_age()
                await self._clock.sleep(MISSING_KIND_SECONDS)
            if kind in self._missing:
                self._log.info(f"{kind.plural}.{kind.group} is installed")
                self._missing.discard(kind)
                informer.show_age()
        await informer.run()

    async def _find(self, kind: ResourceKind) -> bool:
        """Return whether a kind is served, also if that is unknown: its informer will tell."""
        try:
            await self._apis.api_for(kind).list_page(kind, limit=1)
        except NotFoundError:
            return False
        except ApiError:
            return True
        return True

    async def wait_synced(self) -> None:
        """Wait until every kind has been listed once."""
        for informer in self._informers.values():
            await informer.synced.wait()
