"""ECSNodeClass at the API server: refusals, defaults, and what a model reads of it.

Acceptance cases 1-11 and 13-16; 7 as to the default, 11 and 12 as to the size in effect, and 17 as
far as reading goes.
"""

from __future__ import annotations

from functools import cache

import pytest

from karpenter_core.api.crd import render_crd
from karpenter_core.api.schema import SchemaValidator
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from providers.alibabacloud.tests.admission_cases import (
    CASES,
    PUBLISHED,
    data_disk,
    images,
    node_class,
    system_disk,
)

EVERY_CATEGORY = (
    *("cloud", "cloud_efficiency", "cloud_ssd"),
    *("cloud_essd", "cloud_auto", "cloud_essd_entry"),
)


@cache
def validator() -> SchemaValidator:
    version = render_crd(ECSNodeClass)["spec"]["versions"][0]
    return SchemaValidator(version["schema"]["openAPIV3Schema"])


def refused_at(obj: dict) -> set[str]:
    checker = validator()
    return {error.path for error in checker.validate(checker.default(obj), None)}


def read(obj: dict) -> ECSNodeClass:
    return ECSNodeClass.model_validate(obj)


def named(case) -> str:
    return f"{case.number}-{case.name}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_node_class_is_judged_at_its_field(case):
    assert refused_at(case.object) == (set() if case.field is None else {case.field})


@pytest.mark.parametrize("case", [case for case in CASES if case.field is None], ids=named)
def test_accepted_objects_are_read_and_written_alike(case):
    stored = validator().default(case.object)

    found = read(stored)

    assert found.model_dump(mode="json", exclude_unset=True)["spec"] == stored["spec"]
    assert found == read(case.object)


@pytest.mark.parametrize("case", [case for case in CASES if case.field is not None], ids=named)
def test_refused_objects_are_still_read(case):
    """Case 17: it may be stored already, let in by an API server with another CRD."""
    read(case.object)


def test_policy_and_two_switches_are_filled_in_and_nothing_else():
    """Case 7; what a user wrote is what GitOps tools find."""
    stored = validator().default(node_class())

    assert stored["spec"] == {
        **node_class()["spec"],
        "vSwitchSelectionPolicy": "cheapest",
        "formatDataDisk": False,
        "passwordInherit": False,
    }


def test_defaults_of_disks_are_filled_in():
    assert validator().default(system_disk())["spec"]["systemDisk"] == {
        "categories": list(EVERY_CATEGORY),
        "performanceLevel": "PL0",
    }
    assert validator().default(data_disk())["spec"]["dataDisks"] == [{"volumeSize": "20Gi"}]


def test_the_published_form_is_stored_unchanged():
    stored = validator().default(PUBLISHED)

    assert PUBLISHED["spec"].items() <= stored["spec"].items()


@pytest.mark.parametrize("field", ["unknownField", "subnetSelectorTerms"])
def test_an_unknown_field_is_dropped(field):
    assert field not in validator().default(node_class(**{field: "x"}))["spec"]


@pytest.mark.parametrize(
    ("disk", "gib"),
    [
        (None, 20),
        ({}, 20),
        ({"size": 20}, 20),
        ({"size": 40}, 40),
        ({"size": 40, "volumeSize": "60Gi"}, 60),
        ({"volumeSize": "64G"}, 59),
        ({"volumeSize": "1Ti"}, 1024),
        ({"size": 40, "volumeSize": "Ti"}, 40),
        ({"volumeSize": "10Gi"}, 20),
        ({"size": 10}, 20),
    ],
)
def test_the_size_of_the_system_disk_is_volume_size_before_size(disk, gib):
    """Cases 11 and 12; also of sizes that only another CRD lets in."""
    assert read(node_class(systemDisk=disk)).spec.system_disk_gib == gib


@pytest.mark.parametrize(
    ("size", "gib"), [("10Gi", 20), ("100Gi", 100), ("64G", 59), ("Ti", 20), (None, 20)]
)
def test_a_data_disk_has_twenty_gib_at_least(size, gib):
    (disk,) = read(data_disk(**({"volumeSize": size} if size else {}))).spec.data_disks

    assert disk.size_gib == gib


def test_disks_may_be_of_any_category_unless_some_are_named():
    named = read(system_disk(categories=["cloud_essd", "cloud_auto"])).spec

    assert read(node_class()).spec.system_disk_categories == EVERY_CATEGORY
    assert read(system_disk()).spec.system_disk_categories == EVERY_CATEGORY
    assert read(system_disk(categories=[])).spec.system_disk_categories == EVERY_CATEGORY
    assert named.system_disk_categories == ("cloud_essd", "cloud_auto")
    assert named.effective_data_disk_categories == ("cloud_essd", "cloud_auto")
    assert read(
        node_class(dataDiskCategories=["cloud_ssd"])
    ).spec.effective_data_disk_categories == ("cloud_ssd",)


def test_the_system_disk_has_the_lowest_level_unless_another_is_named():
    assert read(node_class()).spec.system_disk_performance_level == "PL0"
    assert read(system_disk(performanceLevel="PL2")).spec.system_disk_performance_level == "PL2"


@pytest.mark.parametrize(
    ("text", "name", "version", "known"),
    [
        ("ContainerOS", "ContainerOS", "latest", True),
        ("ContainerOS@latest", "ContainerOS", "latest", True),
        ("AlibabaCloudLinux3@20250117", "AlibabaCloudLinux3", "20250117", True),
        ("Debian", "Debian", "latest", False),
        ("A@b@c", "A", "b@c", False),
        ("ContainerOS@", "ContainerOS", "latest", True),
        ("@latest", "", "latest", False),
    ],
)
def test_an_alias_is_family_and_version(text, name, version, known):
    """Case 17: one of an unknown family is read too, as such."""
    alias = read(images({"alias": text})).alias

    assert alias is not None
    assert (alias.name, alias.version, alias.family is not None) == (name, version, known)
    assert alias.is_latest is (version == "latest")
    assert str(alias) == f"{name}@{version}"


def test_images_by_id_have_no_alias():
    assert read(images({"id": "m-1"}, {"id": "m-2"})).alias is None


def test_only_set_fields_reach_the_kubelet():
    fields = {
        "maxPods": 0,
        "cpuCFSQuota": False,
        "clusterDNS": ["192.168.0.10"],
        "imageGCLowThresholdPercent": 70,
        "kubeReserved": {"cpu": "100m"},
        "evictionHard": {"memory.available": "5%"},
    }
    found = read(node_class(kubeletConfiguration={**fields, "evictionSoft": {}})).spec

    assert found.kubelet_configuration is not None
    assert found.kubelet_configuration.as_set() == fields
    assert list(found.kubelet_configuration.as_set()) == sorted(fields)


def test_a_password_is_not_in_the_text_of_its_node_class():
    """Such texts get into logs and error messages."""
    assert "Abcdef12" not in repr(read(node_class(password="Abcdef12")))


def test_status_keeps_discovered_resources():
    status = {
        "vSwitches": [{"id": "vsw-1", "zoneID": "cn-hangzhou-b"}],
        "securityGroups": [{"id": "sg-1", "name": "web"}],
        "images": [
            {
                "id": "aliyun_3_arm64_20G_alibase_20240819.vhd",
                "name": "web-1",
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
                    {
                        "key": "karpenter.k8s.alibabacloud/instance-gpu-count",
                        "operator": "DoesNotExist",
                    },
                ],
            }
        ],
        "capacityReservations": [
            {
                "id": "crp-1",
                "zoneID": "cn-hangzhou-b",
                "instanceType": "ecs.g7.large",
                "name": "web",
                "matchCriteria": "Target",
                "endTime": "2030-01-01T00:00:00Z",
            }
        ],
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
                "observedGeneration": 1,
            }
        ],
    }
    obj = {**node_class(), "status": status}

    stored = validator().default(obj)
    found = read(stored)

    assert stored["status"] == status
    assert refused_at(obj) == set()
    assert found.status.model_dump(mode="json", exclude_unset=True) == status
