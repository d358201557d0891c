"""Registers simulated virtual machines as kubelets do, in the cluster of a scenario."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from karpenter_core.kube.resources import NODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from karpenter_core.testing.harness import ControllerHarness
    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_azure.cloud import SimulatedAzure

_PERIOD_SECONDS = 0.25


class NodeRegistrar:
    """Applies Nodes when they come and when their conditions change; deletes those without instance."""

    def __init__(self, cloud: SimulatedAzure, harness: ControllerHarness) -> None:
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
            await cluster.clock.sleep(_PERIOD_SECONDS)

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
async def joining(cloud: SimulatedAzure, stage: ProviderCluster) -> AsyncIterator[None]:
    """Register virtual machines while the context is open."""
    task = asyncio.create_task(NodeRegistrar(cloud, stage.harness).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
