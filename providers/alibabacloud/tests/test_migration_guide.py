"""Tests the guide's chapter on moving over from the existing provider."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from karpenter_core.controllers.nodeclass.controller import termination_finalizer
from karpenter_core.operator.options import OPTIONS
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass, ECSNodeClassSpec
from karpenter_provider_alibabacloud.described_instances import provider_id
from karpenter_provider_alibabacloud.instance_tags import owned_tags
from karpenter_provider_alibabacloud.settings import SETTINGS

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "alibabacloud.md").read_text()
CREDENTIALS = (
    ROOT / "providers/alibabacloud/karpenter_provider_alibabacloud/credentials.py"
).read_text()
CHART_HERE = ROOT / "charts" / "karpenter"
CHART = {
    *(f"alibabacloud.{n}" for n in ("access_key_id", "access_key_secret", "region_id")),
    *(
        f"controller.{name}"
        for name in (
            *("affinity", "env", "image", "nodeSelector", "priorityClassName", "replicaCount"),
            *("resources", "revisionHistoryLimit", "strategy.rollingUpdate.maxUnavailable"),
            *("terminationGracePeriodSeconds", "tolerations", "metrics.port", "healthProbe.port"),
            "featureGates.spotToSpotConsolidation",
        )
    ),
    *(
        f"controller.settings.{name}"
        for name in (
            *("batchIdleDuration", "batchMaxDuration", "clusterID", "telemetryShare"),
            "vmMemoryOverheadPercent",
        )
    ),
    *("logLevel", "logOutputPaths", "podDisruptionBudget.minAvailable", "serviceAccount"),
}
"""The values of the existing provider's chart."""


def table(heading: str) -> list[list[str]]:
    """Return the cells of the guide's table with this heading, without heading and rule."""
    rows = GUIDE.split(f"{heading}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def values() -> dict[str, tuple[str, str]]:
    """Return default and place here by value of the chart."""
    rows = re.findall(
        r"^\| `([\w.]+)` \| (.*?) ?\| (.*) \|$",
        GUIDE.split("| value of the old chart |", 1)[1].split("\n\n", 1)[0],
        re.MULTILINE,
    )
    return {name: (default.strip().strip("`"), here) for name, default, here in rows}


def at(schema: Any, path: str) -> Any:
    for name in path.split("."):
        schema = schema["properties"][name]
    return schema


def default_of(path: str) -> str:
    """Return the default of a value of this project's chart, or of the setting that it stands for."""
    value: Any = yaml.safe_load((CHART_HERE / "values.yaml").read_text())
    group, _, name = path.partition(".")
    if group == "settings":
        table = yaml.safe_load((CHART_HERE / "files/settings.yaml").read_text())["settings"]
        (variable,) = (each["env"] for each in table if each["name"] == name.partition(".")[0])
        options = {it.env: it.default_text for it in OPTIONS}
        return options.get(variable) or str({it.env: it.default for it in SETTINGS}[variable])
    for name in path.split("."):
        value = value[name]
    return str(value)


def test_every_value_of_the_chart_has_its_place():
    assert values().keys() == CHART


@pytest.mark.parametrize("value", sorted(CHART))
def test_every_replacement_that_the_guide_names_exists(value):
    _, here = values()[value]
    schema = json.loads((CHART_HERE / "values.schema.json").read_text())
    known = {it.env for it in (*OPTIONS, *SETTINGS)}
    known |= set(re.findall(r'"(ALIBABA_CLOUD_\w+)"', CREDENTIALS))
    named = set(re.findall(r"`([a-z][\w.]+)`", here))
    variables = set(re.findall(r"`([A-Z][A-Z_]+)`", here))

    assert named
    assert all(at(schema, path) for path in named)
    assert variables <= known


def test_values_have_the_defaults_of_the_other_chart():
    """But for the feature gate and the budget, of which the guide says so."""
    for name, (default, here) in values().items():
        (place, *_) = re.findall(r"`([a-z][\w.]+)`", here)
        if name == "controller.featureGates.spotToSpotConsolidation":
            assert f"SpotToSpotConsolidation={default}" not in default_of(place)
        elif default:
            assert default_of(place).lower() == default


def test_equal_settings_are_listed_as_equal():
    said = dict(table("| what | names |"))
    resource = ECSNodeClass.resource
    tags = owned_tags({}, cluster_id="<cluster id>", node_class="n", node_pool="p")

    assert f"`{resource.kind}` of `{resource.group}/{resource.version}`" in said["kinds"]
    assert set(re.findall("`([^`]+)`", said["tags of instances"])) == {
        *tags,
        labels.NODE_CLAIM_TAG,
        labels.NAME_TAG,
    }
    assert set(re.findall("`([^`]+)`", said["labels of nodes"])) == {
        labels.INSTANCE_CATEGORY,
        labels.NODE_CLASS,
        labels.ZONE_ID,
    }
    assert f"`{provider_id('<region>', '<instance id>')}`" in said["other"]
    assert f"`{termination_finalizer(ECSNodeClass())}`" in said["other"]
    lease = next(it for it in OPTIONS if it.flag == "leader-election-name")
    assert f"`{lease.default}`" in said["other"]


def test_fields_that_only_this_provider_has_are_fields():
    section = GUIDE.split("### Roll back", 1)[1].split("## ", 1)[0]
    named = set(re.findall(r"its CRD drops (.*?) and\s", section, re.DOTALL)[0].split("`")[1::2])
    known = {field.alias or name for name, field in ECSNodeClassSpec.model_fields.items()}

    assert named
    assert named <= known
