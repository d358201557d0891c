"""The kwok provider keeps the contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.provider.markers import hookimpl
from karpenter_core.testing import conformance
from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import ConformanceSubject
from karpenter_provider_kwok.faults import KwokFault, KwokFaultKind
from karpenter_provider_kwok.plugin import KwokProvider
from karpenter_provider_kwok.testing import subject as kwok


@pytest.fixture
def subject() -> ConformanceSubject:
    return kwok()


@pytest.mark.parametrize("rule", ["040", "048", "052", "070", "084"])
def test_listings_that_are_behind_keep_the_rules(rule, tmp_path):
    """`InstanceListing.as_of` tells the time that a listing shows."""

    @hookimpl
    def karpenter_start(self, context):
        KwokProvider.karpenter_start(self, context)
        lag = KwokFault(kind=KwokFaultKind.LAGGING_LISTING, delay=timedelta(milliseconds=300))
        self.cloud.disturbances.inject(lag)

    rules = {
        name.split("_")[2]: getattr(conformance, name)
        for name in conformance.__all__
        if name.startswith("test_pc_")
    }
    behind = replace(
        kwok(), make=type("Behind", (KwokProvider,), {"karpenter_start": karpenter_start})
    )
    rules[rule](behind, tmp_path)
