"""The AWS provider keeps the contract, over boto3 and the simulated AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import Subject
from karpenter_provider_aws.testing import few_types, simulated_environment, subject_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_provider_aws.simulated.cloud import SimulatedAws


@pytest.fixture(scope="module")
def cloud() -> Iterator[SimulatedAws]:
    """One server for all rules; each finds the cloud as it was in the beginning."""
    with few_types() as aws:
        yield aws


@pytest.fixture
def subject(cloud: SimulatedAws) -> Iterator[Subject]:
    cloud.reset()
    with simulated_environment(cloud):
        yield subject_on(cloud)
