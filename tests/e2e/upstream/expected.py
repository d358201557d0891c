"""The scenarios of Karpenter's end-to-end suites that are to pass."""

from __future__ import annotations

EXPECTED = {"regression": frozenset(), "performance": frozenset()}
