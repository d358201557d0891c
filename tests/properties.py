"""How many examples a property is tried on; `conftest.py` at the root says how they are drawn."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = os.environ.get("KARPENTER_PROPERTY_EXAMPLES", "")


def examples(usual: int) -> int:
    """Return how many examples to try: as many as usual, unless the environment says otherwise."""
    return int(EXAMPLES or usual)


def tried(usual: int) -> settings:
    """Decorate a property that is tried on so many examples."""
    return settings(max_examples=examples(usual), suppress_health_check=list(HealthCheck))
