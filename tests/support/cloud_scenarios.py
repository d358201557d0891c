"""Shares the parts of scenarios on simulated clouds: time, retries, pods, joining Nodes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from karpenter_core.kube.resources import NODES
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.cloud_time import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from datetime import datetime

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.testing.harness import ControllerHarness
    from karpenter_core.testing.provider_cluster import ProviderCluster

__all__ = ["FAST_RETRIES", "ClusterTime", "in_pool", "joining", "pod_manifest"]

FAST_RETRIES: Final = RetryPolicy(
    throttled_attempts=2,
    transient_attempts=2,
    first_backoff_seconds=0.001,
    longest_backoff_seconds=0.001,
)
"""Waits inside a call take real time."""


class ClusterTime:
    """The simulated time of a scenario, and the real one between scenarios."""

    def __init__(self) -> None:
        self._now: Callable[[], datetime] = utc_now

    def __call__(self) -> datetime:
        return self._now()

    @contextmanager
    def of(self, clock: Clock) -> Iterator[None]:
        """Go by a clock while the context is open."""
        self._now = clock.now
        try:
            yield
        finally:
            self._now = utc_now


def pod_manifest(name: str, *, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    """Return a pod; `spec` are further fields."""
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def in_pool(name: str) -> Mapping[str, Any]:
    """Return what binds a pod to a NodePool."""
    return {"nodeSelector": {"karpenter.sh/nodepool": name}}


class NodeRegistrar:
    """Applies Nodes when they come and when their conditions change; deletes those without instance."""

    def __init__(
        self, cloud: SimulatedCloud[Any], harness: ControllerHarness, every_seconds: float
    ) -> None:
        self._every_seconds = every_seconds
        self._cloud = cloud
        self._harness = harness
        self._names: dict[str, str] = {}
        """Of the Nodes, by provider ID."""
        self._announced: set[str] = set()
        """Provider IDs whose Nodes have the conditions of an eviction."""

    async def run(self) -> None:
        """Follow the cloud until cancelled."""
        cluster = self._harness.cluster
        while True:
            nodes = self._cloud.nodes()
            for provider_id, node in nodes.items():
                body = cast("dict[str, Any]", node)
                if provider_id not in self._names:
                    cluster.apply([body])
                    self._names[provider_id] = body["metadata"]["name"]
                elif conditions := body["status"].get("conditions"):
                    self._announce(provider_id, conditions)
            for provider_id in self._names.keys() - nodes.keys():
                name = self._names.pop(provider_id)
                if cluster.find(NODES, name) is not None:
                    cluster.delete(NODES, name)
            await cluster.clock.sleep(self._every_seconds)

    def _announce(self, provider_id: str, conditions: list[dict[str, Any]]) -> None:
        cluster, name = self._harness.cluster, self._names[provider_id]
        current = cast("dict[str, Any] | None", cluster.find(NODES, name))
        if provider_id in self._announced or current is None:
            return
        self._announced.add(provider_id)
        conditions = [*current["status"].get("conditions", ()), *conditions]
        body = {"status": {"conditions": conditions}}
        cluster.server.registry.patch(NODES, body, name, part="status")


@asynccontextmanager
async def joining(
    cloud: SimulatedCloud[Any], stage: ProviderCluster, *, every_seconds: float = 1
) -> AsyncIterator[None]:
    """Register instances as kubelets do, and delete the Nodes of those that are gone, in the context."""
    task = asyncio.create_task(NodeRegistrar(cloud, stage.harness, every_seconds).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
