"""Shipped providers in one process share settings."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

import karpenter_provider_alibabacloud
import karpenter_provider_aws
import karpenter_provider_azure
import karpenter_provider_kwok
from karpenter_core.operator.options import flag_name
from karpenter_core.operator.settings_loader import load_settings
from karpenter_provider_alibabacloud.settings import SETTINGS as OF_ALIBABA_CLOUD
from karpenter_provider_aws.settings import SETTINGS as OF_AWS
from karpenter_provider_azure.setting_specs import SETTINGS as OF_AZURE
from karpenter_provider_kwok.settings import SETTINGS as OF_KWOK

OVERHEAD = "vm-memory-overhead-percent"


def read(*arguments, environment=None):
    return load_settings(
        arguments, environment or {}, plugin_options=[*OF_AWS, *OF_ALIBABA_CLOUD, *OF_AZURE]
    )


def test_few_settings_are_shared():
    """Each new one must be thought of: what a user gives reaches all providers that have it."""
    clouds = (OF_AWS, OF_ALIBABA_CLOUD, OF_AZURE)
    names = [{flag_name(spec) for spec in specs} for specs in clouds]

    shared = [a & b for a, b in combinations(names, 2)]
    assert shared == [{OVERHEAD}, {OVERHEAD, "cluster-endpoint"}, {OVERHEAD}]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0.075, 0.065, 0.075)),
        ({"VM_MEMORY_OVERHEAD_PERCENT": "0.05"}, (0.05, 0.05, 0.05)),
        ({"VM_MEMORY_OVERHEAD_PERCENT": "much"}, (0.075, 0.065, 0.075)),
    ],
)
def test_each_provider_lacks_memory_by_its_own_default(environment, expected):
    settings = read(environment=environment)

    clouds = (OF_AWS, OF_ALIBABA_CLOUD, OF_AZURE)
    result = tuple(settings.of_plugin(specs)[OVERHEAD] for specs in clouds)
    assert result == expected


@pytest.mark.parametrize(
    "specs", [OF_AWS, OF_ALIBABA_CLOUD, OF_AZURE], ids=["aws", "alibabacloud", "azure"]
)
def test_an_unset_shared_setting_uses_the_providers_own(specs):
    alone = load_settings([], {}, plugin_options=specs)

    assert read().of_plugin(specs) == alone.of_plugin(specs)


@pytest.mark.parametrize(
    ("package", "specs"),
    [
        (karpenter_provider_aws, OF_AWS),
        (karpenter_provider_alibabacloud, OF_ALIBABA_CLOUD),
        (karpenter_provider_azure, OF_AZURE),
        (karpenter_provider_kwok, OF_KWOK),
    ],
    ids=["aws", "alibabacloud", "azure", "kwok"],
)
def test_every_setting_of_a_provider_has_a_reader(package, specs):
    """A setting that its settings module only declares does nothing."""
    text = (Path(package.__file__).parent / "settings.py").read_text(encoding="utf-8")
    declared, _, reading = text.partition("def from_context(")

    unread = {flag_name(spec) for spec in specs if f'"{flag_name(spec)}"' not in reading}

    assert declared
    assert unread <= {"telemetry-share"}  # nothing is reported to anybody: said in its help
