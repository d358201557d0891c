"""Tests the settings with which the provider refuses to start."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.provider.contract import ClusterFacts
from karpenter_provider_tinycloud.plugin import SETTINGS, TinyCloud


def test_a_cluster_without_a_name_is_refused():
    """Two clusters without a name would terminate each other's VMs."""
    settings = {spec.flag.removeprefix("--"): spec.default for spec in SETTINGS}
    context = SimpleNamespace(settings=settings, cluster=ClusterFacts())
    with pytest.raises(SettingsError, match="--cluster-name: must be given"):
        TinyCloud().karpenter_start(context)
