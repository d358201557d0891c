"""API servers judge EC2NodeClasses by the rendered CRD as our own validator does."""

from __future__ import annotations

import asyncio
import copy
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.api.crd import crd_name, render_crd
from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, custom
from karpenter_core.testing.cluster import ClusterClient, ClusterError
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from providers.aws.tests.admission_cases import CASES, KUBELET, UPDATE_CASES, node_class

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from karpenter_core.testing.beds import Bed

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

KIND = custom(EC2NodeClass.resource)
CRD = render_crd(EC2NodeClass)


@asynccontextmanager
async def with_crd(bed: Bed) -> AsyncIterator[ClusterClient]:
    """Put the definition into the cluster, and take it away with all that was made by it.

    The embedded server has the definitions of all installed providers from the start.
    """
    async with ClusterClient(bed.kubeconfig) as client:
        if await is_served(client):
            yield client
            for each in await client.list(KIND):
                await client.delete(KIND, each["metadata"]["name"])
            return
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        try:
            await until_served(client, served=True)
            yield client
        finally:
            await client.delete(CUSTOM_RESOURCE_DEFINITIONS, crd_name(EC2NodeClass.resource))
            await until_served(client, served=False)


async def until_served(client: ClusterClient, *, served: bool) -> None:
    async with asyncio.timeout(30):
        while True:
            if await is_served(client) is served:
                return
            await asyncio.sleep(0.1)


async def is_served(client: ClusterClient) -> bool:
    try:
        await client.list(KIND)
    except ClusterError as error:
        if error.code != 404:
            raise
        return False
    return True


async def refused_at(client: ClusterClient, obj: dict[str, Any]) -> set[str]:
    try:
        await client.create(KIND, obj)
    except ClusterError as error:
        if error.code != 422:
            raise
        return set(error.fields)
    await client.delete(KIND, obj["metadata"]["name"])
    return set()


async def test_every_node_class_is_judged_at_its_field(bed: Bed):
    """A server may name further fields, never only others."""
    wrong: list[str] = []
    async with with_crd(bed) as client:
        for case in CASES:
            fields = await refused_at(client, case.object)
            if (case.field is None and fields) or (case.field and case.field not in fields):
                wrong.append(f"{case.name}: refused at {sorted(fields)}, expected {case.field}")
        for case in UPDATE_CASES:
            stored = await client.create(KIND, case.old)
            fresh = copy.deepcopy(case.new)
            fresh["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
            await client.request("PUT", KIND.path(name=stored["metadata"]["name"]), fresh)
            await client.delete(KIND, stored["metadata"]["name"])

    assert wrong == []


async def test_kubelet_is_stored_unaltered_and_metadata_options_are_filled_in(bed: Bed):
    """What the schema keeps, and what it adds."""
    async with with_crd(bed) as client:
        stored = await client.create(KIND, node_class(kubelet=KUBELET))

    assert stored["spec"]["kubelet"] == KUBELET
    assert stored["spec"]["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }
