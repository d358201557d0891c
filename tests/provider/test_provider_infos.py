"""Each provider says of itself what the core, and the rights that it asks for, depend on."""

from __future__ import annotations

import pytest

from karpenter_provider_alibabacloud.plugin import AlibabaCloudProvider
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_azure.plugin import AzureProvider
from karpenter_provider_kwok.plugin import KwokProvider

CLOUDS = [AwsProvider, AlibabaCloudProvider, AzureProvider]


@pytest.mark.parametrize("provider", CLOUDS)
def test_nodes_of_clouds_register_themselves_and_their_classes_can_be_observed(provider):
    assert (provider.info.creates_nodes, provider.info.observes) == (False, True)


def test_the_simulated_cloud_creates_nodes():
    """It has no kubelets; nor has it anything that a process which only observes must not change."""
    assert (KwokProvider.info.creates_nodes, KwokProvider.info.observes) == (True, False)
