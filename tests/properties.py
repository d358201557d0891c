"""Number of examples that a property is tried on."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = os.environ.get("KARPENTER_PROPERTY_EXAMPLES", "")
LEAST_SECONDS = 1200
"""On a busy machine; a failure that is cut off by a time limit tells nothing."""


def examples(usual: int) -> int:
    """Return how many examples to try: as many as usual, unless the environment says otherwise.

    It says a number, or a part of what is usual: `/10` is a tenth.
    """
    if EXAMPLES.startswith("/"):
        return max(usual // int(EXAMPLES.removeprefix("/")), 1)
    return int(EXAMPLES or usual)


def with_examples(usual: int):
    """Decorate a property that is tried on so many examples, with the time that they take."""
    count = examples(usual)

    def decorate(test):
        limited = pytest.mark.timeout(max(LEAST_SECONDS, count))(pytest.mark.properties(test))
        return settings(max_examples=count, suppress_health_check=list(HealthCheck))(limited)

    return decorate
