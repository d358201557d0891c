"""The provider keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_provider_tinycloud.testing import subject as simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.conformance import ConformanceSubject


@pytest.fixture
def subject() -> Iterator[ConformanceSubject]:
    with simulated() as made:
        yield made
