"""Checks which objects of provider kinds an API server refuses."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from karpenter_core.api.crd import crd_name, render_crd
from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, ResourceKind, custom_kind
from karpenter_core.testing.cluster import ClusterClient, ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from karpenter_core.api.nodeclass import NodeClass
    from tests.support.local_clusters import LocalCluster


@asynccontextmanager
async def with_crd(
    local_cluster: LocalCluster, model: type[NodeClass]
) -> AsyncIterator[ClusterClient]:
    """Put a kind's definition into the cluster, and take it away with all that was made by it.

    The embedded server has the definitions of all installed providers from the start.
    """
    kind = custom_kind(model.resource)
    async with ClusterClient(local_cluster.kubeconfig) as client:
        if await is_served(client, kind):
            yield client
            for each in await client.list(kind):
                await client.delete(kind, each["metadata"]["name"])
            return
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, render_crd(model))
        try:
            await until_served(client, kind, served=True)
            yield client
        finally:
            await client.delete(CUSTOM_RESOURCE_DEFINITIONS, crd_name(model.resource))
            await until_served(client, kind, served=False)


async def until_served(client: ClusterClient, kind: ResourceKind, *, served: bool) -> None:
    """Wait until the server knows the kind, or does not any more."""
    async with asyncio.timeout(30):
        while True:
            if await is_served(client, kind) is served:
                return
            await asyncio.sleep(0.1)


async def is_served(client: ClusterClient, kind: ResourceKind) -> bool:
    """Return whether the server has the kind."""
    try:
        await client.list(kind)
    except ClusterError as error:
        if error.code != 404:
            raise
        return False
    return True


async def refused_at(client: ClusterClient, kind: ResourceKind, obj: dict[str, Any]) -> set[str]:
    """Return the fields that the server refuses an object at; none when it takes it."""
    try:
        await client.create(kind, obj)
    except ClusterError as error:
        if error.code != 422:
            raise
        return set(error.fields)
    await client.delete(kind, obj["metadata"]["name"])
    return set()


async def misjudged(client: ClusterClient, kind: ResourceKind, cases: Iterable[Any]) -> list[str]:
    """Return the cases (name, object, field) that the server does not refuse at their field.

    A server may name further fields, never only others.
    """
    wrong: list[str] = []
    for case in cases:
        fields = await refused_at(client, kind, case.object)
        if (case.field is None and fields) or (case.field and case.field not in fields):
            wrong.append(f"{case.name}: refused at {sorted(fields)}, expected {case.field}")
    return wrong
