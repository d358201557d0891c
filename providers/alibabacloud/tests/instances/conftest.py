"""Fixtures: a cluster without instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.alibabacloud.tests.instances.cluster_world import World

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


@pytest.fixture
def world(cloud: SimulatedAlibabaCloud, clients: CloudClients) -> World:
    return World(cloud, clients)
