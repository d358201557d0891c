"""Fixtures: a process on the simulated cloud, and its NodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.alibabacloud.tests.launch.processes import Process, class_of

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


@pytest.fixture
def process(cloud: SimulatedAlibabaCloud, clients: CloudClients, tmp_path: Path) -> Process:
    """A process that has just started."""
    return Process(cloud, clients, tmp_path)


@pytest.fixture
def node_class(cloud: SimulatedAlibabaCloud) -> ECSNodeClass:
    """A NodeClass of the ready world that can be launched."""
    return class_of(cloud)
