"""Fixtures of interruptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.aws.tests.interruption.cloud_world import World

if TYPE_CHECKING:
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_simulated_aws.cloud import SimulatedAws


@pytest.fixture
def world(aws: SimulatedAws, clients: CloudClients) -> World:
    """A cluster without instances, and its queue."""
    return World(aws, clients)
