"""The two pluggy markers of the project `karpenter`."""

from __future__ import annotations

from typing import Final

import pluggy

__all__ = ["PROJECT", "hookimpl", "hookspec"]

PROJECT: Final = "karpenter"
"""Pluggy project name and entry-point group."""

hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
