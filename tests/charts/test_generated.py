"""Generated parts of the charts are up to date; needs no Helm."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from charts.generate.settings_table import REQUIRED, value_name
from charts.generate.values_file import describe, values_of

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "charts"


def test_no_generated_file_is_stale():
    done = subprocess.run(
        [sys.executable, "-m", "charts.generate"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["karpenter", "karpenter-crd"])
def test_charts_have_the_version_of_the_project(name):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHARTS / name / "Chart.yaml").read_text())

    assert (chart["name"], chart["version"], chart["appVersion"]) == (name, version, version)


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        # Names in the values.yaml of the reference chart for AWS, version 1.14.
        ("cluster-name", "clusterName"),
        ("cluster-endpoint", "clusterEndpoint"),
        ("cluster-ca-bundle", "clusterCABundle"),
        ("isolated-vpc", "isolatedVPC"),
        ("eks-control-plane", "eksControlPlane"),
        ("vm-memory-overhead-percent", "vmMemoryOverheadPercent"),
        ("interruption-queue", "interruptionQueue"),
        ("enable-zonal-shift", "enableZonalShift"),
        ("reserved-enis", "reservedENIs"),
        ("ignore-dra-requests", "ignoreDRARequests"),
        ("disable-cluster-state-observability", "disableClusterStateObservability"),
        ("disable-dry-run", "disableDryRun"),
        ("ami-refresh-interval", "amiRefreshInterval"),
        ("subnet-refresh-interval", "subnetRefreshInterval"),
        ("batch-max-duration", "batchMaxDuration"),
        ("batch-idle-duration", "batchIdleDuration"),
        ("preference-policy", "preferencePolicy"),
        ("min-values-policy", "minValuesPolicy"),
        ("feature-gates", "featureGates"),
        ("aws-feature-gates", "awsFeatureGates"),
    ],
)
def test_settings_have_the_names_of_the_reference_chart(flag, name):
    schema = json.loads((CHARTS / "karpenter" / "values.schema.json").read_text())

    assert value_name(flag) == name
    assert name in schema["properties"]["settings"]["properties"]


@pytest.mark.parametrize("cloud", ["alibabacloud", "aws", "azure"])
def test_the_provider_and_the_chart_require_the_same_settings(cloud, tmp_path):
    """And nothing else: all settings that it misses are in one message."""
    done = subprocess.run(
        [sys.executable, "-m", "karpenter_core.cli.main", "doctor", "--offline"],
        env={
            "PATH": os.environ["PATH"],
            "PROVIDERS": cloud,
            "CACHE_FOLDER": str(tmp_path),
            "AWS_EC2_METADATA_DISABLED": "true",
            "METADATA_ENDPOINT": "http://127.0.0.1:9",
            "COLUMNS": "1000",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    missing = re.findall(r"--([a-z-]+): must be given", done.stdout)

    assert set(missing) == set(REQUIRED[cloud])


def test_a_value_without_a_description_is_refused():

    found = values_of("# -- Fruit\n# of a tree.\nfruit:\n  apple: 1\n  pear: 2\n")

    assert [(each.path, each.help) for each in found] == [(("fruit",), "Fruit of a tree.")]
    with pytest.raises(ValueError, match=r"no description of fruit\.pear$"):
        values_of("fruit:\n  # -- An apple\n  apple: 1\n  pear: 2\n")


def test_a_value_that_the_schema_lacks_is_named():
    values = values_of("fruit:\n  # -- An apple\n  apple: 1\n")
    schema = {"properties": {"fruit": {"properties": {"pear": {}}}}}

    with pytest.raises(ValueError, match=r"no fruit\.apple$"):
        describe(schema, values, [])


def test_every_object_of_the_schema_refuses_or_describes_unknown_keys():
    """Objects of Kubernetes' own types are left to the API server."""
    schema = json.loads((CHARTS / "karpenter" / "values.schema.json").read_text())
    open_ones = set()

    def walk(part, path):
        if "properties" in part and part.get("additionalProperties", True) is True:
            open_ones.add(path)
        for name, inner in part.get("properties", {}).items():
            walk(inner, f"{path}.{name}")

    walk(schema, "")

    assert open_ones == set()


def test_the_pinned_helm_is_the_one_that_is_built():
    build = (Path(__file__).parent / "build_helm.py").read_text()
    (version,) = re.findall(r'^VERSION = "(v[\d.]+)"', build, re.MULTILINE)
    folder = Path(__file__).parent / "helm"

    assert f"require helm.sh/helm/v4 {version}\n" in (folder / "go.mod").read_text()
    assert f"helm.sh/helm/v4 {version} h1:" in (folder / "go.sum").read_text()
