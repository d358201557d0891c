"""API servers validate ECSNodeClasses by the rendered CRD as our own validator does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.kube.resources import custom_kind
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from providers.alibabacloud.tests.admission_cases import CASES, PUBLISHED
from tests.e2e.served_kinds import misjudged, with_crd

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

KIND = custom_kind(ECSNodeClass.resource)


async def test_every_node_class_is_judged_at_its_field(local_cluster: LocalCluster):
    """A server may name further fields, never only others."""
    async with with_crd(local_cluster, ECSNodeClass) as client:
        wrong = await misjudged(client, KIND, CASES)

    assert wrong == []


async def test_the_published_form_is_stored_with_its_policy_and_switches_filled_in(
    local_cluster: LocalCluster,
):
    """Fields that the schema keeps and adds."""
    async with with_crd(local_cluster, ECSNodeClass) as client:
        stored = await client.create(KIND, PUBLISHED)
        bare = await client.create(
            KIND,
            {
                **PUBLISHED,
                "metadata": {"name": "bare"},
                "spec": {k: v for k, v in PUBLISHED["spec"].items() if k.endswith("Terms")},
            },
        )

    switches = {"formatDataDisk": False, "passwordInherit": False}
    assert stored["spec"] == {**PUBLISHED["spec"], **switches}
    assert bare["spec"]["vSwitchSelectionPolicy"] == "cheapest"
