"""The smallest provider keeps the contract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import ConformanceSubject

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "provider_minimal"


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConformanceSubject]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from karpenter_provider_minimal import MinimalNodeClass, MinimalProvider

    yield ConformanceSubject(
        name="minimal",
        make=MinimalProvider,
        node_class=MinimalNodeClass(metadata=ObjectMeta(name="default", uid="uid-of-class")),
    )
    sys.modules.pop("karpenter_provider_minimal", None)
