"""The chart of the CRDs."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.charts.strict_yaml import rendered_strictly
from tests.support.helm import (
    CRD_CHART,
    ROOT,
    HelmError,
    helm,
    render,
)


def kinds_of(objects):
    return {each["spec"]["names"]["kind"] for each in objects}


def test_lint_finds_nothing_in_the_chart_of_the_crds():
    helm("lint", "--strict", CRD_CHART)


@pytest.mark.parametrize(
    ("provider", "kinds"),
    [
        ("aws", {"EC2NodeClass"}),
        (["aws", "kwok"], {"EC2NodeClass", "KWOKNodeClass"}),
        ([], set()),
    ],
)
def test_the_crds_are_those_of_the_chosen_providers(provider, kinds):
    objects = render({"provider": provider}, chart=CRD_CHART)

    assert kinds_of(objects) == {"NodePool", "NodeClaim", "NodeOverlay", "CapacityBuffer"} | kinds


def test_kinds_that_other_projects_install_can_be_left_out():
    objects = render({"provider": [], "sharedKinds": False}, chart=CRD_CHART)

    assert kinds_of(objects) == {"NodePool", "NodeClaim", "NodeOverlay"}


def test_the_crds_are_those_of_the_project():
    rendered = {each["metadata"]["name"]: each["spec"] for each in render(chart=CRD_CHART)}
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]

    assert rendered == {each["metadata"]["name"]: each["spec"] for each in files}


def test_the_crds_stay_after_helm_uninstall_by_default():
    kept = render({"additionalAnnotations": {"a": "b"}}, chart=CRD_CHART)
    gone = render({"keep": False}, chart=CRD_CHART)

    assert all(
        each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep", "a": "b"}
        for each in kept
    )
    assert not any(each["metadata"].get("annotations") for each in gone)


@pytest.mark.parametrize(
    "name", ["additionalAnnotations", "additionalLabels", "keep", "provider", "sharedKinds"]
)
def test_a_value_without_content_is_its_default(name):
    """Or `keep:` with nothing behind it would have all nodes deleted with the release."""
    assert render({name: None}, chart=CRD_CHART) == render(chart=CRD_CHART)


def test_labels_and_annotations_of_the_user_are_there_once(tmp_path):
    """Those of the chart give way, but for the annotation that keeps the CRDs."""
    values = {
        "additionalLabels": {"app.kubernetes.io/managed-by": "argo"},
        "additionalAnnotations": {"helm.sh/resource-policy": "none", "a": "b"},
    }

    objects = rendered_strictly(values, tmp_path, chart=CRD_CHART, name="2024")

    metadata = [each["metadata"] for each in objects]
    assert {each["labels"]["app.kubernetes.io/managed-by"] for each in metadata} == {"argo"}
    assert {each["labels"]["app.kubernetes.io/instance"] for each in metadata} == {"2024"}
    assert all(
        each["annotations"] == {"helm.sh/resource-policy": "keep", "a": "b"} for each in metadata
    )


def test_the_chart_of_the_crds_refuses_unknown_values():
    with pytest.raises(HelmError, match=re.escape("at '/provider': value must be one of")):
        render({"provider": "gcp"}, chart=CRD_CHART)
