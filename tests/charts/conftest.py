"""The values that the charts are tried with."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

PARTS = {
    "alibabacloud": ["alibabacloud"],
    "aws": ["aws"],
    "azure": ["azure"],
    "kwok": ["kwok"],
    "several": ["aws", "alibabacloud"],
}
"""By the name of a file with values: its providers."""
EVERY = pytest.mark.parametrize("name", sorted(PARTS))
CI = Path(__file__).parents[2] / "charts" / "karpenter" / "ci"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs Helm."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name != "test_generated.py":
            item.add_marker(pytest.mark.charts)


@pytest.fixture
def values_of():
    """Return a function: the values of a provider (or `several`), which the caller may change."""

    def read(name: str) -> dict[str, Any]:
        return copy.deepcopy(yaml.safe_load((CI / f"{name}-values.yaml").read_text()))

    return read
