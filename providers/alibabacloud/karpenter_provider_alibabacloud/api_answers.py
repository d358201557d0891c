"""Names the type of decoded answers of Alibaba Cloud, which its SDK declares no types for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["ApiAnswer"]

ApiAnswer: TypeAlias = Mapping[str, Any]
"""The decoded body of an answer, or an object in it."""
