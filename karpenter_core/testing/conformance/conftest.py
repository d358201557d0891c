"""Runs each rule against the provider that `--karpenter-provider` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.pytest_plugin import subject_factory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.subject import ConformanceSubject

__all__ = ["subject"]


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Iterator[ConformanceSubject]:
    """Start the simulated cloud of the provider under test, a new one for each rule."""
    try:
        factory = subject_factory(request.config)
        making = factory()
        made = making.__enter__()
    except pytest.UsageError:
        raise
    except Exception as error:
        if "test_pc_001_" in request.node.name:  # one broken rule is enough
            raise
        pytest.skip(f"not shown: the subject cannot be created: {error!r} (PC-001)")
    try:
        yield made
    finally:
        making.__exit__(None, None, None)
