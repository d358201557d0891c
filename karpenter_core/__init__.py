"""A node autoscaler for Kubernetes: a pure decision with thin plumbing around it."""

from __future__ import annotations

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.1.0"
