"""Base of the embedded controllers: a queue of keys, filled by changes.

A controller receives changes at once, but acts only in its own task: a change adds a key to a queue
without duplicates, and the task takes one key after another. Nothing polls; an action that has to
wait sets a timer of the running loop, which may be a virtual one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from karpenter_core.kube.resources import PODS
from karpenter_core.sim.fields import Json
from karpenter_core.sim.store import ADDED, DELETED, Key, ObjectChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.clock import Clock
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.sim.registry import Registry

__all__ = ["PodsByNode", "SimulatedController"]

_TURN: Final = 50  # keys handled before others get the loop


class SimulatedController:
    """Reconciles keys; subclasses `follow` kinds when they are made."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self.registry: Final = registry
        self.clock: Final = clock
        self._queue: Final = dict[Hashable, None]()
        self._timers: Final = dict[Hashable, asyncio.TimerHandle]()
        self._wake: Final = asyncio.Event()
        self._unlisten: Final = list["Callable[[], None]"]()

    def reconcile(self, key: Hashable) -> None:
        """Bring the object of the key to its desired state."""
        raise NotImplementedError

    def follow(self, kind: ResourceKind, listener: Callable[[ObjectChange], None]) -> None:
        """Receive every existing object and every later change."""
        for stored in self.registry.store.all(kind):
            listener(ObjectChange(ADDED, stored, None))
        self._unlisten.append(self.registry.store.listen(kind, listener))

    def enqueue(self, key: Hashable, *, after_seconds: float = 0.0) -> None:
        """Queue a key for now or for a time; the earliest time wins."""
        timer = self._timers.get(key)
        if after_seconds > 0:
            loop = asyncio.get_running_loop()
            due = loop.time() + after_seconds
            if timer is None or timer.when() > due:
                if timer is not None:
                    timer.cancel()
                self._timers[key] = loop.call_at(due, self.enqueue, key)
            return
        if timer is not None:
            timer.cancel()
            del self._timers[key]
        self._queue[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Reconcile keys until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    for _ in range(min(_TURN, len(self._queue))):
                        key = next(iter(self._queue))
                        del self._queue[key]
                        self.reconcile(key)
                    await asyncio.sleep(0)
        finally:
            for timer in self._timers.values():
                timer.cancel()
            for unlisten in self._unlisten:
                unlisten()


class PodsByNode:
    """The pods that are bound to each node."""

    def __init__(self) -> None:
        self._pods: Final = dict[str, dict[Key, Json]]()

    def on_change(self, change: ObjectChange) -> None:
        """Record a pod."""
        node = change.stored.obj["spec"].get("nodeName", "")
        if not node:
            return
        pods = self._pods.setdefault(node, {})
        if change.type == DELETED:
            pods.pop(change.stored.key, None)
            if not pods:
                del self._pods[node]
        else:
            pods[change.stored.key] = change.stored.obj

    def on(self, node: str) -> list[Json]:
        """Return the pods that are bound to a node, as they are now."""
        return list(self._pods.get(node, {}).values())

    def nodes(self) -> list[str]:
        """Return the names of nodes that pods are bound to."""
        return list(self._pods)

    @classmethod
    def followed_by(cls, actor: SimulatedController) -> PodsByNode:
        """Return an index that is updated before its controller receives a change of a pod."""
        index = cls()
        actor.follow(PODS, index.on_change)
        return index
