"""Labels of instance types: acceptance cases 39-42 and 44."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, NODE_POOL, OS, WINDOWS_BUILD, ZONE
from karpenter_core.api.labels import WELL_KNOWN as CORE_WELL_KNOWN
from karpenter_core.provider.catalogue import Requirement
from karpenter_provider_aws import labels
from karpenter_provider_aws.catalogue.requirements import instance_labels
from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
from providers.aws.tests.catalogue.recorded_region import info, labels_of, node_class, resolve

RESERVATION = {
    "id": "cr-1",
    "availabilityZone": "us-east-1a",
    "instanceType": "m5.large",
    "instanceMatchCriteria": "targeted",
    "ownerID": "123456789012",
    "reservationType": "capacity-block",
    "interruptible": True,
}


def test_a_gpu_type_has_the_labels_of_case_39():
    """Case 39."""
    expected = {
        "instance-category": "g",
        "instance-generation": "4",
        "instance-family": "g4dn",
        "instance-size": "8xlarge",
        "instance-cpu": "32",
        "instance-memory": "131072",
        "instance-cpu-manufacturer": "intel",
        "instance-cpu-sustained-clock-speed-mhz": "2500",
        "instance-ebs-bandwidth": "9500",
        "instance-network-bandwidth": "50000",
        "instance-gpu-name": "t4",
        "instance-gpu-manufacturer": "nvidia",
        "instance-gpu-count": "1",
        "instance-gpu-memory": "16384",
        "instance-local-nvme": "900",
        "instance-hypervisor": "nitro",
        "instance-encryption-in-transit-supported": "true",
        "instance-capability-flex": "false",
        "nitro-sandbox": "true",
    }

    found = {key.rpartition("/")[2]: v for key, v in instance_labels(info("g4dn.8xlarge")).items()}

    assert expected == found


def test_an_accelerator_type_has_the_labels_of_case_40():
    """Case 40."""
    found = labels_of(resolve("inf2.xlarge"))

    assert {
        "instance-accelerator-name": "inferentia2",
        "instance-accelerator-manufacturer": "aws",
        "instance-accelerator-count": "1",
        "instance-network-bandwidth": "2083",
        "instance-ebs-bandwidth": "10000",
        "instance-cpu-sustained-clock-speed-mhz": "3600",
        "instance-cpu": "4",
        "instance-cpu-manufacturer": "amd",
    }.items() <= found.items()
    assert [key for key in found if "gpu" in key] == []


def test_names_with_memory_sizes_have_category_and_generation():
    """Case 41."""
    found = instance_labels(replace(info("m5.metal"), name="u-6tb1.metal"))

    assert (found[labels.INSTANCE_CATEGORY], found[labels.INSTANCE_GENERATION]) == ("u", "1")


def test_names_without_a_generation_have_no_category():
    found = instance_labels(replace(info("m5.metal"), name="mac-m4.metal"))

    assert labels.INSTANCE_CATEGORY not in found
    assert labels.INSTANCE_GENERATION not in found
    assert (found[labels.INSTANCE_FAMILY], found[labels.INSTANCE_SIZE]) == ("mac-m4", "metal")


def test_flex_types_have_their_own_label():
    """Case 42."""
    flex = resolve("c7i-flex.large").requirements.get(labels.INSTANCE_CAPABILITY_FLEX)

    assert flex.has("true")
    assert not flex.admits(Requirement.of(labels.INSTANCE_CAPABILITY_FLEX, "In", ("false",)))


@pytest.mark.parametrize(
    ("family", "build"),
    [
        ("Windows2019", "10.0.17763"),
        ("Windows2022", "10.0.20348"),
        ("Windows2025", "10.0.26100"),
    ],
)
def test_windows_families_run_on_amd64_only(family: str, build: str):
    """Case 44."""
    windows = node_class(family=family)

    intel = resolve("m5.large", windows).requirements
    arm = resolve("m6g.large", windows).requirements

    assert (intel.single_value(OS), intel.single_value(WINDOWS_BUILD)) == ("windows", build)
    assert arm.get(OS) == Requirement.of(OS, "DoesNotExist")


def test_linux_nodes_have_no_windows_build():
    found = resolve("m6g.large").requirements

    assert (found.single_value(OS), found.single_value(ARCH)) == ("linux", "arm64")
    assert found.get(WINDOWS_BUILD).operator == "DoesNotExist"


def test_every_well_known_label_is_defined():
    """Rule PC-021."""
    found = set(resolve("m5.large").requirements.keys())

    assert (CORE_WELL_KNOWN | labels.LABEL_CLASSES.well_known) - {NODE_POOL} - found == set()


def test_zones_are_those_of_the_type_where_the_node_class_has_a_subnet():
    found = resolve("m5.large", node_class(zones=["us-east-1a", "us-east-1x"])).requirements

    assert found.get(ZONE).values == {"us-east-1a"}
    assert found.get(labels.ZONE_ID).values == {"use1-az-a"}


def test_capacity_blocks_are_no_capacity_type():
    found = resolve("p4d.24xlarge").requirements.get(CAPACITY_TYPE)

    assert found.values == {"on-demand", "spot"}


def test_a_reservation_makes_its_type_reserved_and_no_other():
    reserved = node_class(capacityReservations=[RESERVATION])

    mine = resolve("m5.large", reserved).requirements
    other = resolve("m5.xlarge", reserved).requirements

    assert mine.get(CAPACITY_TYPE).values == {"on-demand", "spot", "reserved"}
    assert mine.single_value(labels.CAPACITY_RESERVATION_ID) == "cr-1"
    assert mine.single_value(labels.CAPACITY_RESERVATION_TYPE) == "capacity-block"
    assert mine.single_value(labels.CAPACITY_RESERVATION_INTERRUPTIBLE) == "true"
    assert other.get(CAPACITY_TYPE).values == {"on-demand", "spot"}
    assert {other.get(key).operator for key in labels.RESERVATION_LABELS} == {"DoesNotExist"}


def test_nodes_of_a_partition_group_have_its_id_and_one_of_its_partitions():
    group = DescribedPlacementGroup(
        id="pg-1", name="racks", strategy="partition", partitions=3, spread_level=""
    )

    found = resolve("m5.large", group=group).requirements
    without = resolve("m5.large").requirements

    assert found.single_value(labels.PLACEMENT_GROUP_ID) == "pg-1"
    assert found.get(labels.PLACEMENT_GROUP_PARTITION).values == {"1", "2", "3"}
    assert without.get(labels.PLACEMENT_GROUP_ID).operator == "DoesNotExist"
    assert without.get(labels.PLACEMENT_GROUP_PARTITION).operator == "DoesNotExist"


def test_labels_that_do_not_apply_are_absent():
    found = resolve("t2.nano").requirements

    for key in (
        labels.INSTANCE_LOCAL_NVME,
        labels.INSTANCE_EBS_BANDWIDTH,
        labels.INSTANCE_GPU_COUNT,
        labels.INSTANCE_ACCELERATOR_COUNT,
    ):
        assert found.get(key).operator == "DoesNotExist"
    assert found.single_value(labels.INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED) == "false"
