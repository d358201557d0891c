"""Plays a workload on the embedded cluster: scales Deployments, runs pods.

A pod that is evicted before its end is started again from its beginning, as a Job does.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import BadInputError
from karpenter_core.kube.resources import DEPLOYMENTS, NAMESPACES, PODS
from karpenter_core.sim.fields import section
from karpenter_core.sim.status import StatusError
from karpenter_core.sim.store import DELETED

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.cli.simulate.workload import PodArrival, Workload
    from karpenter_core.sim.cluster import EmbeddedCluster
    from karpenter_core.sim.store import ObjectChange

__all__ = ["WorkloadDriver"]

_SCALE: Final = 0
_ARRIVE: Final = 1


@final
class WorkloadDriver:
    """Carries out a workload, from the moment when `run` is called."""

    def __init__(self, cluster: EmbeddedCluster, workload: Workload) -> None:
        self._cluster: Final = cluster
        self._workload: Final = workload
        self._running: Final = dict[tuple[str, str], "PodArrival"]()
        """Pods that came by arrival and have not ended, by namespace and name."""
        self._attempts: Final = dict[tuple[str, str], int]()
        self._ending: Final = dict[str, asyncio.TimerHandle]()
        """Timers of pods that run, by UID."""
        self._stop_listening: Callable[[], None] | None = None
        self.finished = 0
        """Pods that ran to their end."""
        self.restarted = 0
        """Pods that were started again."""

    def prepare(self) -> None:
        """Create the namespaces of the workload.

        Raises:
            BadInputError: a name cannot be used.
        """
        spaces = {entry.namespace: entry.where for entry in self._workload.manifests}
        spaces |= {arrival.namespace: arrival.where for arrival in self._workload.arrivals}
        for name, where in sorted(spaces.items()):
            if name and self._cluster.find(NAMESPACES, name) is None:
                manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                try:
                    self._cluster.apply([manifest])
                except StatusError as error:
                    raise BadInputError(f"{where}: {error.message}") from error

    async def run(self) -> None:
        """Play the workload to its last change.

        Raises:
            BadInputError: the API server refuses an object.
        """
        registry = self._cluster.server.registry
        self._stop_listening = registry.store.listen(PODS, self._on_pod)
        for entry in self._workload.manifests:
            try:
                self._cluster.apply([entry.manifest])
            except (StatusError, BadInputError) as error:
                raise BadInputError(f"{entry.where}: {entry.title}: {error}") from error
        began = self._cluster.clock.monotonic()
        steps: list[tuple[float, int, int]] = []
        changes = [
            (change, deployment)
            for deployment in self._workload.deployments
            for change in deployment.changes
        ]
        steps += [(change.at, _SCALE, number) for number, (change, _) in enumerate(changes)]
        steps += [
            (arrival.at, _ARRIVE, number) for number, arrival in enumerate(self._workload.arrivals)
        ]
        heapq.heapify(steps)
        while steps:
            at, kind, number = heapq.heappop(steps)
            pause = began + at - self._cluster.clock.monotonic()
            if pause > 0:
                await self._cluster.clock.sleep(pause)
            if kind == _SCALE:
                change, deployment = changes[number]
                self._cluster.scale(
                    DEPLOYMENTS, deployment.name, change.replicas, namespace=deployment.namespace
                )
            else:
                self._start(self._workload.arrivals[number])

    def stop(self) -> None:
        """Stop playing."""
        if self._stop_listening is not None:
            self._stop_listening()
        for timer in self._ending.values():
            timer.cancel()

    def _start(self, arrival: PodArrival) -> None:
        key = (arrival.namespace, arrival.name)
        attempt = self._attempts.get(key, 0)
        name = f"{arrival.name}-{attempt}" if attempt else arrival.name
        self._attempts[key] = attempt + 1
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            **arrival.pod,
            "metadata": {**arrival.pod["metadata"], "name": name, "namespace": arrival.namespace},
        }
        self._running[arrival.namespace, name] = arrival
        try:
            self._cluster.server.registry.create(PODS, body, arrival.namespace)
        except StatusError as error:
            raise BadInputError(f"{arrival.where}: {error.message}") from error

    def _on_pod(self, change: ObjectChange) -> None:
        arrival = self._running.get(change.stored.key)
        if arrival is None:
            return
        pod, uid = change.stored.obj, change.stored.uid
        phase = section(pod, "status").get("phase")
        if change.type == DELETED or phase == "Failed":
            self._running.pop(change.stored.key)
            timer = self._ending.pop(uid, None)
            if timer is not None:
                timer.cancel()
            self.restarted += 1
            asyncio.get_running_loop().call_soon(self._start, arrival)
        elif phase == "Running" and uid not in self._ending and arrival.run_seconds is not None:
            self._ending[uid] = asyncio.get_running_loop().call_later(
                arrival.run_seconds, self._finish, change.stored.key, uid
            )

    def _finish(self, key: tuple[str, str], uid: str) -> None:
        """End a pod that has run its time, and remove it."""
        self._ending.pop(uid, None)
        found = self._cluster.find(PODS, key[1], namespace=key[0])
        if found is None or found["metadata"]["uid"] != uid:
            return
        self._running.pop(key, None)
        self.finished += 1
        registry = self._cluster.server.registry
        registry.patch(PODS, {"status": {"phase": "Succeeded"}}, key[1], key[0], part="status")
        registry.delete(PODS, key[1], key[0], grace_seconds=0)
