"""Simulated instances register Nodes from user data, read as each image reads it."""

from __future__ import annotations

from base64 import b64encode

import pytest

from karpenter_core.api.nodeclaim import TaintSpec
from karpenter_core.api.quantities import parse_quantity
from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.families.bootstrap import UNREGISTERED, BootstrapInput
from karpenter_provider_aws.families.family import user_data
from karpenter_simulated_aws.user_data import BootError, read_user_data

IMAGES = {
    AmiFamily.AL2: "amazon-eks-node-1.32-v20260608",
    AmiFamily.AL2023: "amazon-eks-node-al2023-x86_64-standard-1.34-v20260608",
    AmiFamily.BOTTLEROCKET: "bottlerocket-aws-k8s-1.34-x86_64-v1.46.0-0f1e2d3c",
    AmiFamily.WINDOWS2022: "Windows_Server-2022-English-Core-EKS_Optimized-1.34-2026.06.08",
}
WANTED = BootstrapInput(
    cluster_name="test",
    cluster_endpoint="https://example.eks.amazonaws.com",
    ca_bundle="Y2VydGlmaWNhdGU=",
    service_cidr="10.100.0.0/16",
    labels={"karpenter.sh/nodepool": "default", "team": "web"},
    taints=(TaintSpec(key="dedicated", value="web", effect="NoSchedule"), UNREGISTERED),
    kubelet={
        "maxPods": 20,
        "kubeReserved": {"cpu": "80m", "memory": "893Mi"},
        "systemReserved": {"cpu": "100m"},
        "evictionHard": {"memory.available": "5%"},
        "clusterDNS": ["10.100.0.10"],
    },
)


@pytest.mark.parametrize("family", sorted(IMAGES))
def test_the_user_data_of_every_family_is_read_back_unchanged(family):
    settings = read_user_data(user_data(family, WANTED), image=IMAGES[family])

    assert (settings.cluster, settings.endpoint) == ("test", "https://example.eks.amazonaws.com")
    assert settings.certificate == "Y2VydGlmaWNhdGU="
    assert settings.labels == {"karpenter.sh/nodepool": "default", "team": "web"}
    assert {(each.key, each.value, each.effect) for each in settings.taints} == {
        ("dedicated", "web", "NoSchedule"),
        ("karpenter.sh/unregistered", "", "NoExecute"),
    }
    assert settings.max_pods == 20
    assert settings.kube_reserved == {"cpu": "80m", "memory": "893Mi"}
    assert settings.system_reserved == {"cpu": "100m"}
    assert settings.eviction_hard == {"memory.available": "5%"}
    assert settings.cluster_dns == ("10.100.0.10",)


NODE_CONFIG = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
"""


@pytest.mark.parametrize(
    ("family", "text", "why"),
    [
        (AmiFamily.AL2, "#!/bin/bash\necho ready", "bootstrap.sh"),
        (AmiFamily.AL2023, "#!/bin/bash\necho ready", "no NodeConfig"),
        (
            AmiFamily.AL2023,
            f"{NODE_CONFIG}  cluster: {{name: test, apiServerEndpoint: x, certificateAuthority: y}}",
            "spec.cluster.cidr is empty",
        ),
        (AmiFamily.AL2023, f"{NODE_CONFIG}  - [", "no YAML"),
        (AmiFamily.BOTTLEROCKET, "[settings", "no TOML"),
        (
            AmiFamily.BOTTLEROCKET,
            "[settings.kubernetes]\ncluster-name = 'x'",
            "api-server is empty",
        ),
        (AmiFamily.WINDOWS2022, "Write-Output ready", "powershell"),
    ],
)
def test_user_data_that_joins_no_cluster_says_why(family, text, why):
    with pytest.raises(BootError, match=why):
        read_user_data(text, image=IMAGES[family])


def test_later_node_configs_win_and_flags_add_up():
    cluster = "cluster: {name: n, apiServerEndpoint: e, certificateAuthority: c, cidr: d}"
    below = "kubelet: {config: {maxPods: 5, podsPerCore: 2}, flags: [--node-labels=a=b]}"
    above = "kubelet: {config: {maxPods: 9}}"
    parts = [f"{NODE_CONFIG}  {below}\n", f"{NODE_CONFIG}  {cluster}\n  {above}\n"]
    archive = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n' + "".join(
        f"--//\nContent-Type: application/node.eks.aws\n\n{part}\n" for part in parts
    )
    settings = read_user_data(f"{archive}--//--\n", image=IMAGES[AmiFamily.AL2023])

    assert (settings.max_pods, settings.pods_per_core) == (9, 2)
    assert settings.labels == {"a": "b"}


def _launched_id(launch, kind="m5.large", bootstrap=WANTED, **data):
    profile = launch.profile()
    text = user_data(AmiFamily.AL2023, bootstrap)
    launch.template(
        "booting",
        IamInstanceProfile={"Name": profile},
        UserData=b64encode(text.encode()).decode(),
        BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 30}}],
        **data,
    )
    (instance_id,) = launch.fleet(kind, template="booting").ids
    return instance_id


def _amounts(node, which):
    return {name: parse_quantity(text) for name, text in node["status"][which].items()}


def test_a_running_instance_registers_the_node_of_its_user_data(aws, launch):
    instance_id = _launched_id(launch)
    node = aws.node(instance_id)
    labels = node["metadata"]["labels"]

    assert node["spec"]["providerID"] == f"aws:///us-east-1a/{instance_id}"
    assert node["metadata"]["name"] == launch.described(instance_id)[0]["PrivateDnsName"]
    assert labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert labels["topology.kubernetes.io/zone"] == "us-east-1a"
    assert labels["karpenter.sh/nodepool"] == "default"
    assert {"key": "karpenter.sh/unregistered", "effect": "NoExecute"} in node["spec"]["taints"]
    assert aws.nodes() == {f"aws:///us-east-1a/{instance_id}": node}


def test_a_node_has_the_size_of_its_type_less_kernel_and_kubelet_reservations(aws, launch):
    node = aws.node(_launched_id(launch))
    capacity, allocatable = _amounts(node, "capacity"), _amounts(node, "allocatable")

    assert capacity["cpu"] == 2
    assert capacity["pods"] == 20
    assert capacity["ephemeral-storage"] == 30 * 2**30
    assert 0.925 * 8192 * 2**20 < capacity["memory"] < 8192 * 2**20
    assert allocatable["cpu"] == capacity["cpu"] - parse_quantity("180m")
    kept = parse_quantity("893Mi") + capacity["memory"] * 5 / 100
    assert abs(allocatable["memory"] - (capacity["memory"] - kept)) <= 1


def test_without_a_number_of_pods_the_image_works_it_out_from_the_interfaces(aws, launch):
    from dataclasses import replace

    node = aws.node(_launched_id(launch, bootstrap=replace(WANTED, kubelet={})))

    assert _amounts(node, "capacity")["pods"] == 29


def test_an_instance_that_does_not_boot_registers_no_node(aws, launch):
    instance_id = _launched_id(launch)
    aws.kubelets.failing = lambda instance: instance.id == instance_id
    failing = aws.node(instance_id)
    aws.kubelets.clear()
    up = aws.node(instance_id)
    aws.terminate(instance_id)

    assert (failing, aws.node(instance_id)) == (None, None)
    assert up is not None


def test_a_node_registers_after_its_instance_has_booted(aws, launch):
    aws.behaviour.pending_seconds = 10
    aws.behaviour.boot_seconds = 30
    instance_id = _launched_id(launch)
    seen = []
    for seconds in (11, 20, 10):
        aws.time.advance(seconds)
        seen.append(aws.node(instance_id) is not None)

    assert seen == [False, False, True]


def test_an_instance_without_a_profile_does_not_register(aws, launch):
    (instance_id,) = launch.fleet("m5.large").ids

    assert aws.node(instance_id) is None
    assert "instance profile" in aws.kubelets.boot_failure(aws.instance(instance_id))
