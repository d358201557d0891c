"""The kwok provider keeps the contract."""

from __future__ import annotations

import pytest

from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import ConformanceSubject
from karpenter_provider_kwok.testing import subject as kwok


@pytest.fixture
def subject() -> ConformanceSubject:
    return kwok()
