"""API servers validate EC2NodeClasses by the rendered CRD as our own validator does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

from karpenter_core.kube.resources import custom_kind
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from providers.aws.tests.admission_cases import CASES, KUBELET, UPDATE_CASES, node_class
from tests.e2e.served_kinds import misjudged, with_crd

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

KIND = custom_kind(EC2NodeClass.resource)


async def test_every_node_class_is_judged_at_its_field(local_cluster: LocalCluster):
    """A server may name further fields, never only others."""
    async with with_crd(local_cluster, EC2NodeClass) as client:
        wrong = await misjudged(client, KIND, CASES)
        for case in UPDATE_CASES:
            stored = await client.create(KIND, case.old)
            fresh = copy.deepcopy(case.new)
            fresh["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
            await client.request("PUT", KIND.path(name=stored["metadata"]["name"]), fresh)
            await client.delete(KIND, stored["metadata"]["name"])

    assert wrong == []


async def test_kubelet_is_stored_unaltered_and_metadata_options_are_filled_in(
    local_cluster: LocalCluster,
):
    """Fields that the schema keeps and adds."""
    async with with_crd(local_cluster, EC2NodeClass) as client:
        stored = await client.create(KIND, node_class(kubelet=KUBELET))

    assert stored["spec"]["kubelet"] == KUBELET
    assert stored["spec"]["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }
