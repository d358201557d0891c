"""API servers validate AKSNodeClasses by the rendered CRD as our own validator does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from karpenter_core.kube.resources import custom_kind
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from providers.azure.tests.admission_cases import CASES, WHOLE, kubelet, node_class, without_spec
from tests.e2e.served_kinds import misjudged, with_crd

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

KIND = custom_kind(AKSNodeClass.resource)
DEPRECATED = replace(KIND, version="v1alpha2")


async def test_every_node_class_is_judged_at_its_field(local_cluster: LocalCluster):
    """A server may name further fields, never only others."""
    async with with_crd(local_cluster, AKSNodeClass) as client:
        wrong = await misjudged(client, KIND, CASES)

    assert wrong == []


async def test_defaults_are_filled_in_below_spec_alone(local_cluster: LocalCluster):
    """Cases 1 and 9."""
    async with with_crd(local_cluster, AKSNodeClass) as client:
        whole = await client.create(KIND, WHOLE)
        empty = await client.create(KIND, node_class("empty"))
        bare = await client.create(KIND, without_spec("bare"))
        of_kubelet = await client.create(KIND, {**kubelet(), "metadata": {"name": "of-kubelet"}})

    assert whole["spec"] == WHOLE["spec"]
    assert empty["spec"] == {"osDiskSizeGB": 128, "imageFamily": "Ubuntu"}
    assert "spec" not in bare
    assert of_kubelet["spec"]["kubelet"]["containerLogMaxSize"] == "50Mi"


async def test_an_object_of_the_deprecated_version_is_one_of_the_stored_version(
    local_cluster: LocalCluster,
):
    """Case 15."""
    async with with_crd(local_cluster, AKSNodeClass) as client:
        made = await client.create(
            DEPRECATED, {**WHOLE, "apiVersion": "karpenter.azure.com/v1alpha2"}
        )
        (stored,) = await client.list(KIND)

    assert made["apiVersion"] == "karpenter.azure.com/v1alpha2"
    assert stored["spec"] == made["spec"] == WHOLE["spec"]
