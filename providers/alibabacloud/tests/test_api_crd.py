"""The CRD of ECSNodeClass: it can be rendered, and has the names that users know."""

from __future__ import annotations

from typing import Any

import yaml

from karpenter_core.api.crd import crd_file_name, render_crd, render_yaml
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


def version() -> dict[str, Any]:
    return render_crd(ECSNodeClass)["spec"]["versions"][0]


def schema() -> dict[str, Any]:
    return version()["schema"]["openAPIV3Schema"]


def test_the_definition_is_rendered_alike_each_time():
    assert crd_file_name(ECSNodeClass) == "karpenter.k8s.alibabacloud_ecsnodeclasses.yaml"
    assert render_yaml(ECSNodeClass) == render_yaml(ECSNodeClass)
    assert yaml.safe_load(render_yaml(ECSNodeClass)) == render_crd(ECSNodeClass)


def test_names_are_those_users_know():
    spec = render_crd(ECSNodeClass)["spec"]

    assert spec["group"] == "karpenter.k8s.alibabacloud"
    assert spec["scope"] == "Cluster"
    assert spec["names"] == {
        "kind": "ECSNodeClass",
        "listKind": "ECSNodeClassList",
        "plural": "ecsnodeclasses",
        "singular": "ecsnodeclass",
        "categories": ["karpenter"],
        "shortNames": ["ecsnc", "ecsncs"],
    }
    found = version()
    assert (found["name"], found["served"], found["storage"]) == ("v1alpha1", True, True)
    assert found["subresources"] == {"status": {}}
    assert [column["name"] for column in found["additionalPrinterColumns"]] == ["Ready", "Age"]


def test_fields_are_those_of_the_reference_and_ours():
    """Those of the first four lines are in manifests that exist; what is ours may be absent."""
    spec = schema()["properties"]["spec"]

    assert set(spec["properties"]) == {
        *("vSwitchSelectorTerms", "vSwitchSelectionPolicy", "securityGroupSelectorTerms"),
        *("imageSelectorTerms", "kubeletConfiguration", "systemDisk", "dataDisks"),
        *("dataDiskCategories", "formatDataDisk", "tags", "resourceGroupId", "userData"),
        *("password", "keyPairName", "passwordInherit"),
        *("capacityReservationSelectorTerms", "ramRoleName", "spot", "deploymentSetId"),
        *("metadataOptions", "internetMaxBandwidthOut", "internetChargeType", "nodePoolId"),
    }
    assert spec["required"] == [
        "imageSelectorTerms",
        "securityGroupSelectorTerms",
        "vSwitchSelectorTerms",
    ]
    assert set(spec["properties"]["kubeletConfiguration"]["properties"]) == {
        *("clusterDNS", "maxPods", "podsPerCore", "systemReserved", "kubeReserved"),
        *("evictionHard", "evictionSoft", "evictionSoftGracePeriod"),
        *("evictionMaxPodGracePeriod", "imageGCHighThresholdPercent"),
        *("imageGCLowThresholdPercent", "cpuCFSQuota"),
    }
    assert set(spec["properties"]["systemDisk"]["properties"]) == {
        *("categories", "volumeSize", "size", "performanceLevel"),
        *("encrypted", "kmsKeyId", "provisionedIops", "burstingEnabled"),
    }
    assert set(spec["properties"]["dataDisks"]["items"]["properties"]) == {
        *("volumeSize", "device", "performanceLevel", "encrypted", "kmsKeyId"),
        *("snapshotId", "deleteWithInstance"),
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


def test_tags_of_users_leave_room_for_ours():
    """The cluster's, its id, and the pool, class, claim and name of a node, and one to spare."""
    ours = {*RESTRICTED_TAGS, "kubernetes.io/cluster/c1", "Name"} - {"ecs:ecs-cluster-name"}

    assert len(ours) + 1 + MAX_USER_TAGS == MAX_TAGS
