"""What the engine cannot do yet: one switch per feature, taken away when it can."""

from __future__ import annotations

import pytest

NEEDS_RESERVATIONS = pytest.mark.xfail(
    reason="the engine does not keep account of reservations yet", strict=False
)
