"""The CRD of ECSNodeClass: it can be rendered, and says what the published one says, and more."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from karpenter_core.api.crd import crd_file_name, render_crd, render_yaml
from karpenter_core.testing.crd_facts import facts_of
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.labels import (
    CAPACITY_RESERVATION_ID,
    GROUP,
    INSTANCE_LABELS,
    LABEL_CLASSES,
    MAX_TAGS,
    MAX_USER_TAGS,
    NODE_CLASS,
    RESTRICTED_TAGS,
)

PUBLISHED = Path(__file__).with_name("published_fields.json")

_SIZES = "The published pattern takes a bare Ti or T, and refuses 18Ti, 19Ti, 28Ti and so on."
_ANCHORS = "The published pattern has no anchors; ids never hold more."
_MAP = "As many as there are keys; so the API server can tell what the rules cost."
_AMOUNT = "What is no amount would keep the kubelet from starting."
_EMPTY = "An empty one would find everything."
DIFFERENCES = {
    ".spec.dataDiskCategories[]": (["enum"], "The published definition only describes them."),
    ".spec.dataDisks": (["maxItems"], "ECS's own bound."),
    ".spec.dataDisks[].volumeSize": (["pattern"], _SIZES),
    ".spec.imageSelectorTerms[].alias": (["maxLength"], "There are longer families."),
    ".spec.imageSelectorTerms[].id": (["minLength"], _EMPTY),
    ".spec.kubeletConfiguration.evictionHard": (["maxProperties"], _MAP),
    ".spec.kubeletConfiguration.evictionHard[*]": (["pattern"], _AMOUNT),
    ".spec.kubeletConfiguration.evictionSoft": (["maxProperties"], _MAP),
    ".spec.kubeletConfiguration.evictionSoft[*]": (["pattern"], _AMOUNT),
    ".spec.kubeletConfiguration.evictionSoftGracePeriod": (["maxProperties"], _MAP),
    ".spec.kubeletConfiguration.evictionSoftGracePeriod[*]": (["pattern"], _AMOUNT),
    ".spec.kubeletConfiguration.kubeReserved": (["maxProperties"], _MAP),
    ".spec.kubeletConfiguration.kubeReserved[*]": (["pattern"], _AMOUNT),
    ".spec.kubeletConfiguration.systemReserved": (["maxProperties"], _MAP),
    ".spec.kubeletConfiguration.systemReserved[*]": (["pattern"], _AMOUNT),
    ".spec.resourceGroupId": (["pattern"], _ANCHORS),
    ".spec.securityGroupSelectorTerms[].id": (["pattern"], _ANCHORS),
    ".spec.securityGroupSelectorTerms[].name": (["minLength"], _EMPTY),
    ".spec.systemDisk.categories[]": (["enum"], "The published definition only describes them."),
    ".spec.systemDisk.size": (["minimum"], "The published definition has it as a rule."),
    ".spec.systemDisk.volumeSize": (["pattern"], f"{_SIZES} ECS makes none below 20Gi."),
    ".spec.tags": (["maxProperties"], "An instance has 20 tags, seven of them ours."),
    ".spec.tags[*]": (["maxLength"], "ECS's own bound."),
    ".spec.vSwitchSelectorTerms[].id": (["pattern"], _ANCHORS),
}
"""Fields that differ from the published ones, in which words, and why."""


@cache
def published() -> dict[str, Any]:
    return json.loads(PUBLISHED.read_text())


@cache
def ours() -> dict[str, Any]:
    return facts_of(render_crd(ECSNodeClass))


def schema() -> dict[str, Any]:
    return render_crd(ECSNodeClass)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_the_definition_is_rendered_alike_each_time():
    assert crd_file_name(ECSNodeClass) == "karpenter.k8s.alibabacloud_ecsnodeclasses.yaml"
    assert render_yaml(ECSNodeClass) == render_yaml(ECSNodeClass)
    assert yaml.safe_load(render_yaml(ECSNodeClass)) == render_crd(ECSNodeClass)


@pytest.mark.parametrize("part", ["names", "scope", "version", "subresources"])
def test_names_are_the_published_ones(part):
    assert ours()[part] == published()[part]


def test_columns_say_whether_it_is_ready():
    """The published definition has none."""
    assert published()["columns"] == []
    assert [column["name"] for column in ours()["columns"]] == ["Ready", "Age"]


def test_every_published_field_is_there():
    assert published()["fields"].keys() <= ours()["fields"].keys()


def test_fields_equal_the_published_schema_but_for_listed_differences():
    """Types, bounds, patterns, what is required, and defaults."""
    mine, theirs = ours()["fields"], published()["fields"]

    assert {
        path: sorted(
            word
            for word in mine[path].keys() | theirs[path].keys()
            if mine[path].get(word) != theirs[path].get(word)
        )
        for path in theirs
        if mine[path] != theirs[path]
    } == {path: sorted(words) for path, (words, _why) in DIFFERENCES.items()}


def test_fields_of_ours_may_be_absent():
    """So that every manifest of the published form is accepted: nothing of ours is required."""
    mine, theirs = ours()["fields"], published()["fields"]
    added = mine.keys() - theirs.keys()

    assert {
        path for path in added if path.startswith(".spec") and "required" in mine[path]
    } == set()
    assert {
        path.split(".")[2].removesuffix("[]") for path in added if path.startswith(".spec")
    } == {
        *("capacityReservationSelectorTerms", "ramRoleName", "spot", "deploymentSetId"),
        *("metadataOptions", "internetMaxBandwidthOut", "internetChargeType", "nodePoolId"),
        *("imageSelectorTerms", "vSwitchSelectorTerms", "systemDisk", "dataDisks"),
    }


def test_every_field_is_described():
    def bare(part: dict[str, Any], path: str) -> list[str]:
        found: list[str] = []
        for name, child in part.get("properties", {}).items():
            here = f"{path}.{name}"
            if "description" not in child and here != ".metadata":
                found.append(here)
            found += bare(child, here) + bare(child.get("items", {}), here)
        return found

    assert bare(schema(), "") == []


def test_users_may_set_well_known_labels_of_the_domain_alone():
    assert LABEL_CLASSES.restricted_domains == {GROUP}
    assert LABEL_CLASSES.well_known >= {
        "karpenter.k8s.alibabacloud/instance-family",
        "karpenter.k8s.alibabacloud/instance-gpu-memory",
        "topology.k8s.alibabacloud/zone-id",
        "node.kubernetes.io/windows-build",
        CAPACITY_RESERVATION_ID,
        *INSTANCE_LABELS,
    }
    assert NODE_CLASS not in LABEL_CLASSES.well_known  # set by the core
    assert LABEL_CLASSES.aliases == {
        "topology.diskplugin.csi.alibabacloud.com/zone": "topology.kubernetes.io/zone"
    }


def test_user_tags_leave_space_for_ours():
    """The cluster's, its id, and the pool, class, claim and name of a node, and one to spare."""
    ours = {*RESTRICTED_TAGS, "kubernetes.io/cluster/c1", "Name"} - {"ecs:ecs-cluster-name"}

    assert len(ours) + 1 + MAX_USER_TAGS == MAX_TAGS
