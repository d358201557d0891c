"""The Alibaba Cloud provider keeps the contract, over the SDKs and the simulated Alibaba Cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import ConformanceSubject
from karpenter_simulated_alibabacloud.testing import subject_on

if TYPE_CHECKING:
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


@pytest.fixture
def subject(few_types_cloud: SimulatedAlibabaCloud) -> ConformanceSubject:
    return subject_on(few_types_cloud)
