"""Devices, images and bootstrap settings of each AMI family: cases 120, 125 and 126."""

from __future__ import annotations

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClassRef, TaintSpec
from karpenter_core.testing.builders import instance_type
from karpenter_provider_aws.api.families import AmiFamily, parse_alias
from karpenter_provider_aws.api.nodeclass import Ami
from karpenter_provider_aws.families.bootstrap import (
    UNREGISTERED,
    bootstrap_labels,
    bootstrap_taints,
    cluster_dns,
    is_ipv6,
    kubelet_fields,
)
from karpenter_provider_aws.families.family import image_parameters
from karpenter_provider_aws.families.images import NEURON, NVIDIA, STANDARD, image_for
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.labels import INSTANCE_ACCELERATOR_COUNT, INSTANCE_GPU_COUNT

ARM64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
AMD64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


def claim(taints=(), startup_taints=()) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name="web-abc12"),
        spec=NodeClaimSpec(
            taints=taints,
            startup_taints=startup_taints,
            node_class_ref=NodeClassRef(group="g", kind="k", name="n"),
        ),
    )


def ami(ami_id: str, *requirements) -> Ami:
    return Ami.model_validate({"id": ami_id, "requirements": requirements})


# -- traits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", AmiFamily)
def test_kubelet_uses_a_default_device_of_the_assumed_size(family):
    traits = TRAITS[family]

    sizes = {device.device_name: device.size_gib for device in traits.default_devices}

    if family is AmiFamily.CUSTOM:
        assert (sizes, traits.ephemeral_device) == ({}, "")
    else:
        assert sizes[traits.ephemeral_device] == traits.default_ephemeral_gib


# -- images ------------------------------------------------------------------------------------


def paths(alias: str, kubernetes_version: str) -> dict[str, tuple]:
    """Return what each parameter's image is for, by path."""
    parameters = image_parameters(parse_alias(alias), kubernetes_version)
    return {parameter.path: parameter.requirement_sets for parameter in parameters}


def test_al2_has_an_image_for_each_architecture_and_one_for_all_accelerators():
    base = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2"

    assert paths("al2@latest", "1.32") == {
        f"{base}/recommended/image_id": (STANDARD,),
        f"{base}-arm64/recommended/image_id": (STANDARD,),
        f"{base}-gpu/recommended/image_id": (NEURON, NVIDIA),
    }
    assert set(paths("al2@v20240625", "1.32")) == {
        f"{base}/amazon-eks-node-1.32-v20240625/image_id",
        f"{base}-arm64/amazon-eks-arm64-node-1.32-v20240625/image_id",
        f"{base}-gpu/amazon-eks-gpu-node-1.32-v20240625/image_id",
    }


def test_al2023_has_an_image_for_each_architecture_and_accelerator():
    base = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023"

    assert paths("al2023@latest", "1.33") == {
        f"{base}/x86_64/standard/recommended/image_id": (STANDARD,),
        f"{base}/x86_64/nvidia/recommended/image_id": (NVIDIA,),
        f"{base}/x86_64/neuron/recommended/image_id": (NEURON,),
        f"{base}/arm64/standard/recommended/image_id": (STANDARD,),
        f"{base}/arm64/nvidia/recommended/image_id": (NVIDIA,),
    }
    assert (
        f"{base}/arm64/nvidia/amazon-eks-node-al2023-arm64-nvidia-1.33-v20240625/image_id"
        in paths("al2023@v20240625", "1.33")
    )


@pytest.mark.parametrize("version", ["v1.46.0", "1.46.0", "latest"])
def test_bottlerocket_has_an_image_for_each_architecture_and_for_nvidia(version):
    base = "/aws/service/bottlerocket/aws-k8s-1.33"
    leaf = f"{version.removeprefix('v')}/image_id"

    assert paths(f"bottlerocket@{version}", "1.33") == {
        f"{base}/x86_64/{leaf}": (STANDARD, NEURON),
        f"{base}/arm64/{leaf}": (STANDARD,),
        f"{base}-nvidia/x86_64/{leaf}": (NVIDIA,),
        f"{base}-nvidia/arm64/{leaf}": (NVIDIA,),
    }


@pytest.mark.parametrize(
    ("year", "build"), [("2019", "10.0.17763"), ("2022", "10.0.20348"), ("2025", "10.0.26100")]
)
def test_windows_has_one_image_per_build(year, build):
    [(path, [requirements])] = paths(f"windows{year}@latest", "1.35").items()

    name = f"Windows_Server-{year}-English-Core-EKS_Optimized-1.35"
    assert path == f"/aws/service/ami-windows-latest/{name}/image_id"
    assert {r.key: r.values for r in requirements} == {
        "kubernetes.io/os": ("windows",),
        "node.kubernetes.io/windows-build": (build,),
    }


@pytest.mark.parametrize(
    ("alias", "mutable"),
    [
        ("al2@latest", True),
        ("al2023@latest", True),
        ("bottlerocket@latest", True),
        ("windows2022@latest", True),
        ("al2@v1", False),
        ("al2023@v1", False),
        ("bottlerocket@v1.2.3", False),
    ],
)
def test_only_parameters_of_the_latest_images_change_their_values(alias, mutable):
    parameters = image_parameters(parse_alias(alias), "1.33")

    assert {parameter.mutable for parameter in parameters} == {mutable}


def test_an_instance_boots_the_first_compatible_image_of_the_status():
    amis = [
        ami("ami-gpu", AMD64, {"key": INSTANCE_GPU_COUNT, "operator": "Exists"}),
        ami("ami-arm", ARM64),
        ami("ami-new", AMD64, {"key": INSTANCE_GPU_COUNT, "operator": "DoesNotExist"}),
        ami("ami-old", AMD64),
    ]
    plain = instance_type("m5.large")
    gpu = instance_type("g5.large", labels={INSTANCE_GPU_COUNT: "1"})
    arm = instance_type("m6g.large", arch="arm64")
    neuron = instance_type("inf2.large", labels={INSTANCE_ACCELERATOR_COUNT: "1"})

    assert image_for(gpu, amis).id == "ami-gpu"
    assert image_for(arm, amis).id == "ami-arm"
    assert image_for(neuron, [ami("ami-x", ARM64)]) is None
    # Whether there is a GPU has not been said of this type, so the first image may be for it.
    assert image_for(plain, amis[1:]).id == "ami-new"


# -- what the kubelet is told ------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    [
        "foo.kubernetes.io/bar",
        "kubernetes.io/bar",
        "k8s.io/bar",
        "foo.k8s.io/bar",
        "node-restriction.kubernetes.io/bar",
        "foo.node-restriction.kubernetes.io/bar",
    ],
)
def test_labels_that_a_kubelet_may_not_set_never_reach_it(label):
    found = bootstrap_labels({label: "x", "team": "a"}, capacity_type="spot", is_custom=True)

    assert found == {"karpenter.sh/capacity-type": "spot", "team": "a"}


@pytest.mark.parametrize("label", ["example.com/kubernetes.io", "mykubernetes.io/a", "k8s.io"])
def test_labels_similar_to_forbidden_ones_reach_the_kubelet(label):
    assert bootstrap_labels({label: "x"}, capacity_type="spot", is_custom=True)[label] == "x"


@pytest.mark.parametrize("is_custom", [True, False])
def test_taints_are_not_synced_unless_the_image_is_custom(is_custom):
    found = bootstrap_labels({}, capacity_type="on-demand", is_custom=is_custom)

    assert ("karpenter.sh/do-not-sync-taints" in found) is not is_custom


def test_the_capacity_type_is_that_of_the_launch():
    found = bootstrap_labels(
        {"karpenter.sh/capacity-type": "spot"}, capacity_type="on-demand", is_custom=False
    )

    assert found["karpenter.sh/capacity-type"] == "on-demand"


def test_a_node_registers_with_all_its_taints_and_the_one_of_young_nodes():
    own = TaintSpec(key="own", effect="NoSchedule")
    startup = TaintSpec(key="startup", effect="NoExecute")

    assert bootstrap_taints(claim((own,), (startup,))) == (own, startup, UNREGISTERED)
    assert bootstrap_taints(claim((UNREGISTERED, own))) == (UNREGISTERED, own)


def test_expressions_give_way_to_their_results():
    spec = {
        "maxPods": "min(250, default_enis)",
        "kubeReserved": {"cpu": "vcpus * 10", "memory": "nonsense("},
        "systemReserved": {"cpu": "nonsense("},
        "podsPerCore": 4,
    }

    fields = kubelet_fields(
        spec, max_pods=20, kube_reserved={"cpu": "40m"}, system_reserved={}, dns_ip=""
    )

    assert fields == {"maxPods": 20, "kubeReserved": {"cpu": "40m"}, "podsPerCore": 4}
    assert spec["maxPods"] == "min(250, default_enis)"


@pytest.mark.parametrize(
    ("spec", "dns_ip", "found"),
    [
        ({}, "10.0.0.10", ("10.0.0.10",)),
        ({"clusterDNS": []}, "10.0.0.10", ("10.0.0.10",)),
        ({"clusterDNS": ["1.1.1.1", "8.8.8.8"]}, "10.0.0.10", ("1.1.1.1", "8.8.8.8")),
        ({}, "", ()),
    ],
)
def test_the_service_of_kube_dns_answers_unless_others_are_named(spec, dns_ip, found):
    fields = kubelet_fields(spec, max_pods=20, kube_reserved={}, system_reserved={}, dns_ip=dns_ip)

    assert cluster_dns(fields) == found


def test_only_an_ipv6_address_counts_as_ipv6():
    assert is_ipv6("fd00::a")
    assert not is_ipv6("10.0.0.10")
    assert not is_ipv6("")


# -- TOML --------------------------------------------------------------------------------------
