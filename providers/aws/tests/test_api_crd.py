"""The CRD of EC2NodeClass: it can be rendered, and says what Karpenter's own says."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from karpenter_core.api.crd import crd_file_name, render_crd, render_yaml
from karpenter_core.testing.crd_facts import facts_of
from karpenter_provider_aws.api.nodeclass import AmiFamily, EC2NodeClass, parse_alias
from karpenter_provider_aws.labels import GROUP, LABEL_CLASSES
from providers.aws.tests.admission_cases import node_class

PUBLISHED = Path(__file__).with_name("published_fields.json")

VOLUME_SIZE = ".spec.blockDeviceMappings[].ebs.volumeSize"
DIFFERENCES = {
    VOLUME_SIZE: "The published pattern takes a bare Ti or T for a size, and refuses 18Ti, 19Ti, "
    "28Ti and so on up to 49Ti, which EC2 takes.",
}
"""Fields that differ from the published ones, and why."""


@cache
def published() -> dict[str, Any]:
    return json.loads(PUBLISHED.read_text())


@cache
def ours() -> dict[str, Any]:
    return facts_of(render_crd(EC2NodeClass))


def test_the_definition_is_rendered_alike_each_time():
    assert crd_file_name(EC2NodeClass) == "karpenter.k8s.aws_ec2nodeclasses.yaml"
    assert render_yaml(EC2NodeClass) == render_yaml(EC2NodeClass)
    assert yaml.safe_load(render_yaml(EC2NodeClass)) == render_crd(EC2NodeClass)


@pytest.mark.parametrize("part", ["names", "scope", "version", "columns", "subresources"])
def test_names_and_columns_are_the_published_ones(part):
    assert ours()[part] == published()[part]


def test_fields_are_the_published_ones():
    """Types, bounds, patterns, what is required, and defaults."""
    assert ours()["fields"].keys() == published()["fields"].keys()
    assert {
        path for path, facts in ours()["fields"].items() if facts != published()["fields"][path]
    } == DIFFERENCES.keys()


def test_the_only_schema_differences_are_patterns():
    ours_there, theirs = ours()["fields"][VOLUME_SIZE], published()["fields"][VOLUME_SIZE]

    assert {key for key in ours_there if ours_there[key] != theirs[key]} == {"pattern"}
    assert ours_there.keys() == theirs.keys()


def test_every_field_is_described():
    def bare(schema: dict[str, Any], path: str) -> list[str]:
        found: list[str] = []
        for name, child in schema.get("properties", {}).items():
            here = f"{path}.{name}"
            if "description" not in child and here != ".metadata":
                found.append(here)
            found += bare(child, here) + bare(child.get("items", {}), here)
        return found

    version = render_crd(EC2NodeClass)["spec"]["versions"][0]
    assert bare(version["schema"]["openAPIV3Schema"], "") == []


@pytest.mark.parametrize(
    ("terms", "family", "expected"),
    [
        ([{"alias": "al2@latest"}], "", AmiFamily.AL2),
        ([{"alias": "al2023@v20240625"}], "", AmiFamily.AL2023),
        ([{"alias": "bottlerocket@1.10.0"}], "", AmiFamily.BOTTLEROCKET),
        ([{"alias": "windows2025@latest"}], "", AmiFamily.WINDOWS2025),
        ([{"alias": "al2023@latest"}], "Custom", AmiFamily.CUSTOM),
        ([{"id": "ami-1"}], "Bottlerocket", AmiFamily.BOTTLEROCKET),
        ([{"id": "ami-1"}], "", AmiFamily.CUSTOM),
        ([{"id": "ami-1"}], "Ubuntu", AmiFamily.CUSTOM),
        ([{"alias": "ubuntu@latest"}], "", AmiFamily.CUSTOM),
        ([], "", AmiFamily.CUSTOM),
    ],
)
def test_the_family_is_that_of_the_spec_or_of_the_alias(terms, family, expected):
    """Also of an object that was stored under another CRD."""
    obj = EC2NodeClass.model_validate(node_class(amiSelectorTerms=terms, amiFamily=family))

    assert obj.ami_family is expected


def test_an_alias_is_family_and_version():
    alias = parse_alias("bottlerocket@1.10.0")

    assert alias is not None
    assert (alias.family, alias.version, alias.is_latest) == (
        AmiFamily.BOTTLEROCKET,
        "1.10.0",
        False,
    )
    assert str(alias) == "bottlerocket@1.10.0"
    assert [parse_alias(text) for text in ("", "al2023", "al2023@", "@latest", "AL2@x")] == [
        None
    ] * 5
    latest = parse_alias("al2023@latest")
    assert latest is not None
    assert latest.is_latest


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("20Gi", 20 * 2**30),
        ("20G", 20 * 10**9),
        ("1Ti", 2**40),
        ("", None),
        ("Ti", None),
        ("0Gi", None),
    ],
)
def test_a_volume_has_a_size_in_bytes(text, size):
    """None for what is no size, which an API server with the published CRD lets in."""
    obj = node_class(blockDeviceMappings=[{"ebs": {"volumeSize": text}}])

    (mapping,) = EC2NodeClass.model_validate(obj).spec.block_device_mappings

    assert mapping.ebs is not None
    assert mapping.ebs.size_bytes == size


def test_users_may_set_well_known_labels_of_the_domain_alone():
    assert LABEL_CLASSES.restricted_domains == {GROUP}
    assert f"{GROUP}/instance-family" in LABEL_CLASSES.well_known
    assert f"{GROUP}/ec2nodeclass" not in LABEL_CLASSES.well_known  # set by the core
    assert "topology.k8s.aws/zone-id" in LABEL_CLASSES.well_known
    assert "node.kubernetes.io/windows-build" in LABEL_CLASSES.well_known
    assert LABEL_CLASSES.aliases == {"topology.ebs.csi.aws.com/zone": "topology.kubernetes.io/zone"}
