"""A node autoscaler for Kubernetes: pure decisions, with I/O around them."""

from __future__ import annotations

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.1.0"
