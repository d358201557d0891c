"""What the engine cannot do yet: one switch per feature, taken away when it can."""

from __future__ import annotations

import pytest

NEEDS_REASONS = pytest.mark.xfail(
    reason="pods kept back by other pods or by volumes are told `no claim could be opened`",
    strict=False,
)
