"""The Azure provider keeps the contract, over the SDK and the simulated Azure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import ConformanceSubject
from karpenter_simulated_azure.testing import subject_on

if TYPE_CHECKING:
    from karpenter_simulated_azure.cloud import SimulatedAzure


@pytest.fixture
def subject(few_sizes_cloud: SimulatedAzure) -> ConformanceSubject:
    return subject_on(few_sizes_cloud)
