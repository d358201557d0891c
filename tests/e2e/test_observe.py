"""An observer with permissions to read only does its work on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.cli.rbac import render_rbac
from karpenter_provider_kwok.plugin import KwokProvider

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster
