"""The AWS provider keeps the contract, over boto3 and the simulated AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import ConformanceSubject
from karpenter_simulated_aws.testing import subject_on

if TYPE_CHECKING:
    from karpenter_provider_aws.sdk import SharedClients
    from karpenter_simulated_aws.cloud import SimulatedAws


@pytest.fixture
def subject(few_types_aws: SimulatedAws, few_types_shared: SharedClients) -> ConformanceSubject:
    return subject_on(few_types_aws, shared=few_types_shared)
