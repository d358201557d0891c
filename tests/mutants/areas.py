"""The packages that mutants are drawn from, and the tests that judge them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

AREAS: Final = {
    "karpenter_core/controllers": 5,
    "karpenter_core/disruption": 3,
    "karpenter_core/kube": 3,
    "karpenter_core/lifecycle": 4,
    "karpenter_core/scheduling": 5,
    "karpenter_core/state": 3,
    "providers/alibabacloud/karpenter_provider_alibabacloud": 5,
    "providers/aws/karpenter_provider_aws": 5,
    "providers/azure/karpenter_provider_azure": 5,
    "providers/kwok/karpenter_provider_kwok": 2,
}
"""The share of a sample that each package gets, in parts of the sum of all."""

NOT_MUTATED: Final = frozenset(
    {"testing.py", "metrics.py", "process_metrics.py", "sdk_metrics.py", "data"}
)
"""Folders and modules that serve tests, or that only declare metrics."""

TESTS: Final = ("tests", "providers")
NOT_JUDGES: Final = (
    "tests/benchmarks",
    "tests/cli/test_doctor_process.py",
    "providers/alibabacloud/tests/launch/test_thousand.py",
    "providers/alibabacloud/tests/test_placement_at_scale.py",
    "tests/e2e",
    "tests/mutants",
    "tests/packaging",
    "tests/peer",
    "tests/repository",
)
"""Tests of other things than the product, or ones that take minutes: they judge no mutant."""


def sources(root: Path, areas: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the paths of the modules of each area, in a fixed order."""
    return {
        area: sorted(
            str(path.relative_to(root))
            for path in (root / area).rglob("*.py")
            if NOT_MUTATED.isdisjoint(path.relative_to(root).parts)
        )
        for area in areas
    }
