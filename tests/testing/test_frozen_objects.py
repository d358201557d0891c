"""Takes from the garbage collector again what a test gave back to it: no later test pays for it."""

from __future__ import annotations

import gc
from pathlib import Path

CONFTEST = Path(__file__).parents[2] / "conftest.py"


def test_objects_that_a_test_unfreezes_are_frozen_when_it_ends(pytestconfig):
    conftest = pytestconfig.pluginmanager.get_plugin(str(CONFTEST))
    gc.unfreeze()
    assert gc.get_freeze_count() == 0
    conftest.pytest_runtest_teardown()
    assert gc.get_freeze_count() > 10_000
