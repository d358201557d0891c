"""Runs the controller in this process; commands fill its dashboard."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from karpenter_core.cli.dashboard.content import ClusterContent
from karpenter_core.operator.launcher import run_from_command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run_controller"]


def run_controller(arguments: Sequence[str]) -> int:
    """Run until a signal asks for the end; return the exit code."""
    return asyncio.run(run_from_command_line(arguments, os.environ, dashboard=ClusterContent()))
