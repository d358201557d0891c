"""Labels that follow from an instance type: acceptance cases 35 to 38."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, NODE_POOL, OS, REGION, WELL_KNOWN, ZONE
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.catalogue.instance_type_info import (
    list_at,
    read_instance_type,
    read_name,
)
from karpenter_provider_alibabacloud.catalogue.requirements import (
    instance_labels,
    requirements_of,
    zone_values,
)
from providers.alibabacloud.tests.catalogue.instance_type_data import REGION as HERE
from providers.alibabacloud.tests.catalogue.instance_type_data import (
    World,
    info,
    item,
    labels_of,
    node_class,
    resolve,
)


def type_labels(name: str, **fields: object) -> dict[str, str]:
    found = instance_labels(info(name, **fields))
    return {
        key.removeprefix("karpenter.k8s.alibabacloud/instance-"): it for key, it in found.items()
    }


@pytest.mark.parametrize(
    ("name", "category", "generation", "family", "size"),
    [
        ("ecs.g7.xlarge", "g", "7", "ecs.g7", "xlarge"),
        ("ecs.gn7i-c8g1.2xlarge", "gn", "7", "ecs.gn7i-c8g1", "2xlarge"),
        ("ecs.u1-c1m2.large", "u", "1", "ecs.u1-c1m2", "large"),
        ("ecs.ebmg7.32xlarge", "ebmg", "7", "ecs.ebmg7", "32xlarge"),
        ("ecs.t6-c1m1.large", "t", "6", "ecs.t6-c1m1", "large"),
        ("ecs.vgn6i-m4.xlarge", "vgn", "6", "ecs.vgn6i-m4", "xlarge"),
        ("ecs.c7a.4xlarge", "c", "7", "ecs.c7a", "4xlarge"),
        ("ecs.e-c1m2.large", "", "", "ecs.e-c1m2", "large"),
        ("ecs.u0.c1m1.large", "u", "0", "ecs.u0", "large"),
        ("strange", "", "", "ecs.u0", ""),
    ],
)
def test_a_type_name_is_parsed(name: str, category: str, generation: str, family: str, size: str):
    """Cases 35 and 36."""
    found = read_name(name, family="ecs.u0")

    assert (found.category, found.generation) == (category, generation)
    assert (found.family, found.size) == (family, size)


def test_a_type_with_gpus_names_them():
    """Case 35."""
    found = type_labels("ecs.gn7i-c8g1.2xlarge")

    assert found["category"] == "gn"
    assert found["generation"] == "7"
    assert found["family"] == "ecs.gn7i-c8g1"
    assert found["size"] == "2xlarge"
    assert found["gpu-name"] == "nvidia-a10"
    assert found["gpu-manufacturer"] == "NVIDIA"
    assert found["gpu-count"] == "1"
    assert found["gpu-memory"] == "24"


@pytest.mark.parametrize(
    ("spec", "name"),
    [("NVIDIA T4*1/2", "nvidia-t4-1-2"), ("NVIDIA A100 80G", "nvidia-a100-80g")],
)
def test_a_gpus_name_is_the_value_of_a_label(spec: str, name: str):
    assert type_labels("ecs.gn7i-c8g1.2xlarge", GPUSpec=spec)["gpu-name"] == name


def test_a_type_without_a_generation_has_a_family():
    """Case 36."""
    found = type_labels("ecs.e-c1m2.large")

    assert {"category", "generation"}.isdisjoint(found)
    assert found["family"] == "ecs.e-c1m2"


@pytest.mark.parametrize(("gib", "mib"), [(0.5, "512"), (8.0, "8192"), (1024.0, "1048576")])
def test_memory_is_whole_mib(gib: float, mib: str):
    """Case 37."""
    assert type_labels("ecs.g7.large", MemorySize=gib)["memory"] == mib


@pytest.mark.parametrize(
    ("processor", "model"),
    [
        ("Intel(R) Xeon(R) Platinum 8369B", "intel"),
        ("AMD EPYC 7H12", "amd"),
        ("Yitian 710", "yitian"),
        ("Ampere(R) Altra(R)", "ampere"),
        ("Hygon C86 7290", "hygon"),
    ],
)
def test_the_processors_maker_is_in_its_name(processor: str, model: str):
    assert type_labels("ecs.g7.large", PhysicalProcessorModel=processor)["cpu-model"] == model


def test_a_processor_of_an_unknown_maker_has_no_model():
    """Case 38."""
    world = World("ecs.g8y.large")
    world.types["ecs.g8y.large"] = info("ecs.g8y.large", PhysicalProcessorModel="Kunpeng 920")

    requirement = world.list()["ecs.g8y.large"].requirements.get(labels.INSTANCE_CPU_MODEL)

    assert not requirement.has("")
    assert not requirement.has("intel")
    assert not requirement.complement
    assert not requirement.values


def test_further_facts_of_ecs_are_labels():
    found = type_labels(
        "ecs.g7.large",
        LocalStorageAmount=2,
        LocalStorageCapacity=894,
        LocalStorageCategory="local_ssd_pro",
    )

    assert found["network-bandwidth"] == "2000"
    assert found["family-level"] == "EnterpriseLevel"
    assert found["nvme"] == "required"
    assert found["local-disk-size"] == "1788"
    assert found["local-disk-category"] == "local_ssd_pro"


@pytest.mark.parametrize("name", ["ecs.g7.large", "ecs.gn7i-c8g1.2xlarge", "ecs.e-c1m2.large"])
def test_every_well_known_label_is_defined(name: str):
    it = resolve(name)

    assert set(it.requirements.keys()) >= (WELL_KNOWN | labels.WELL_KNOWN) - {NODE_POOL}


def test_architecture_region_and_zones_are_those_of_its_nodes():
    found = resolve("ecs.g8y.large", node_class(zones=[f"{HERE}-a"]))

    assert labels_of(found)["arch"] == "arm64"
    assert found.requirements.single_value(OS) == "linux"
    assert found.requirements.single_value(REGION) == HERE
    assert found.requirements.single_value(ZONE) == f"{HERE}-a"
    assert found.requirements.single_value(labels.ZONE_ID) == f"{HERE}-a"
    assert found.requirements.single_value(ARCH) == "arm64"


def test_equal_requirements_are_one_object():
    values = zone_values(zones=["b", "a"], capacity_types=["spot"], reservations=())
    same = zone_values(zones=["a", "b", "b"], capacity_types=["spot"], reservations=())

    assert requirements_of(info(), HERE, values) is requirements_of(info(), HERE, same)


@pytest.mark.parametrize("name", ["ecs.ebmg7.32xlarge", "ecs.sccg7.32xlarge"])
def test_bare_metal_types_are_recognised_by_their_family(name: str):
    assert info(name).is_bare_metal
    assert not info("ecs.g7.large").is_bare_metal


def test_an_item_without_what_every_type_has_is_refused():
    with pytest.raises(ValueError, match="CpuArchitecture"):
        read_instance_type({"InstanceTypeId": "ecs.g7.large"})


@pytest.mark.parametrize("value", [None, "", "many", float("nan"), float("inf"), 10**30, -1, True])
def test_an_unreadable_number_is_refused_by_name_and_value(value: object):
    with pytest.raises(ValueError, match=r'ecs\.g7\.large: EniQuantity is "'):
        read_instance_type(item("ecs.g7.large", EniQuantity=value))


@pytest.mark.parametrize("value", [1, "1", 2**31 - 1])
def test_a_number_or_its_text_within_the_bounds_is_read(value: object):
    assert read_instance_type(item("ecs.g7.large", EniQuantity=value)).enis == int(str(value))


@pytest.mark.parametrize(("gib", "is_readable"), [(0.5, True), (0, False), (2**31, False)])
def test_memory_has_bounds(gib: object, is_readable: bool):
    described = item("ecs.g7.large", MemorySize=gib)
    if is_readable:
        assert read_instance_type(described).memory_mib == 512
        return
    with pytest.raises(ValueError, match="MemorySize"):
        read_instance_type(described)


@pytest.mark.parametrize("architecture", ["RISC-V", "", None])
def test_an_unknown_architecture_is_refused(architecture: object):
    with pytest.raises(ValueError, match=r"ecs\.g7\.large: CpuArchitecture is "):
        read_instance_type(item("ecs.g7.large", CpuArchitecture=architecture))


def test_a_list_is_read_from_its_path():
    assert list_at({"A": {"B": [{"C": 1}]}}, "A.B") == [{"C": 1}]
    assert list_at({"A": None}, "A.B") == []
    assert list_at({}, "A.B") == []


@pytest.mark.parametrize(
    ("received", "sent", "bandwidth"),
    [
        (1_024_000, 3_072_000, 1_024_000),
        (3_072_000, 1_024_000, 1_024_000),
        (0, 512, 512),
        (0, 0, 0),
    ],
)
def test_the_bandwidth_of_a_type_is_that_of_its_slower_direction(received, sent, bandwidth):
    """A direction that is not listed does not count."""
    rates = {"InstanceBandwidthRx": received, "InstanceBandwidthTx": sent}
    assert read_instance_type(item("ecs.c7.large", **rates)).bandwidth_kbps == bandwidth


@pytest.mark.parametrize("value", ["[None]", "NVIDIA(R)", "x" * 64, "\x00"])
def test_a_value_that_no_label_may_have_is_left_out(value):
    """The API server would refuse each NodeClaim and Node with it; all launches of the type failed."""
    found = type_labels("ecs.g7.large", family_level=value, nvme="required")
    assert value not in found.values()
    assert "required" in found.values()
