"""What all tests of the repository have in common."""

from __future__ import annotations

import gc
import os

from hypothesis import settings

# The same examples on every run: a change is judged by what it changes. Who looks for new ones
# sets on how many problems each property is tried; those are drawn by lot.
settings.register_profile("steady", derandomize=True, deadline=None)
if "KARPENTER_PROPERTY_EXAMPLES" not in os.environ:
    settings.load_profile("steady")

# All providers of the workspace are installed; programs that tests start need but one.
os.environ.setdefault("PROVIDERS", "kwok")


def pytest_collection_finish() -> None:
    """Leave what thousands of collected tests consist of out of every later garbage collection."""
    gc.collect()
    gc.freeze()
