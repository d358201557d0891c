"""Clients of the simulated Azure through the real SDK."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.arm.credentials import find_credential
from karpenter_provider_azure.cloud_environment import read_environment_file
from providers.azure.tests.arm.values import settings_for

ONE_ATTEMPT = RetryPolicy(throttled_attempts=1, transient_attempts=1)


@pytest.fixture
def settings(cloud):
    """Return the settings of the simulated cluster, with changes."""
    environment, world = cloud.environment, cloud.world

    def made(**changes):
        return settings_for(
            **{
                "cloud": read_environment_file(environment["AZURE_ENVIRONMENT_FILEPATH"]),
                "ca_bundle": cloud.ca_bundle,
                "azure_subscription_id": world.subscription_id,
                "node_resource_group": world.node_group,
                "vnet_subnet_id": world.subnet_id,
                "location": world.location,
                "node_identities": world.identity_ids,
                **changes,
            }
        )

    return made


@pytest.fixture
def arm_of(cloud):
    """Return a client for some settings; its calls are attempted once."""
    clients = []

    def made(settings):
        credential = find_credential(settings.cloud, ca_bundle=settings.ca_bundle)
        clients.append(
            ArmClient(
                settings,
                credential=credential,
                retries=ONE_ATTEMPT,
                observe_remaining=None,
                observe=None,
            )
        )
        return clients[-1]

    yield made
    for client in clients:
        client.close()
