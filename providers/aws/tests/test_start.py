"""A start of the provider that fails."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.errors import SettingsError
from karpenter_core.operator.clock import SystemClock
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import ClusterFacts, Severity
from karpenter_provider_aws.sdk import CloudClients
from karpenter_provider_aws.settings import SETTINGS
from karpenter_provider_aws.started_provider import StartedProvider


def test_a_start_that_fails_late_closes_what_it_opened(monkeypatch):
    closed = []

    def broken(*_arguments, **_options):
        raise OSError("no space left")

    monkeypatch.setattr("karpenter_provider_aws.started_provider.ZonalShiftReader", broken)
    monkeypatch.setattr(CloudClients, "close", lambda _: closed.append(1))
    settings = load_settings((), {}, plugin_options=SETTINGS)
    context = SimpleNamespace(
        settings=settings.plugins,
        feature_gates=settings.feature_gates,
        cluster=ClusterFacts(name="prod"),
        metrics=CollectorRegistry(),
        clock=SystemClock(),
    )

    with pytest.raises(OSError, match="no space left"):
        StartedProvider(context)

    assert not list(context.metrics.collect())
    assert closed == [1]


class WithoutRegion:
    """A provider whose parts cannot be made."""

    @property
    def parts(self):
        raise SettingsError("no region is set")


def test_doctor_names_a_missing_region_as_an_error_with_its_remedy():
    (finding,) = StartedProvider.check(WithoutRegion())
    assert finding.severity is Severity.ERROR
    assert (finding.message, finding.remedy) == ("no region is set", "set AWS_REGION")
