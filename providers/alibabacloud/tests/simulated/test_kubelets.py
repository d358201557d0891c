"""Instances of the simulated Alibaba Cloud register Nodes from their user data."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from karpenter_simulated_alibabacloud.user_data import read_user_data


def encoded(text):
    return b64encode(text.encode()).decode()


def node_config(**kubelet):
    return encoded(json.dumps({"kubelet_config": kubelet}))


def archive(*parts):
    written = "".join(f"--//\nContent-Type: {kind}\n\n{body}\n" for kind, body in parts)
    return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n{written}--//--\n'


@pytest.fixture
def node(cloud, launch):
    """The node of an instance that boots with a script of ACK's and these arguments."""

    def made(arguments="", *, instance_type="ecs.g7.large", architecture="x86_64", **more):
        (instance_id,) = launch.run(
            instance_type,
            ImageId=launch.image(architecture),
            UserData=encoded(launch.script(arguments)),
            **more,
        )
        return cloud.node(f"cn-hangzhou.{instance_id}")

    return made


def test_an_instance_registers_with_its_given_labels_and_taints(cloud, node):
    made = node(
        "--labels team=blue,karpenter.sh/nodepool=default"
        " --taints karpenter.sh/unregistered:NoExecute,a=b:NoSchedule"
    )

    (instance,) = cloud.living()
    assert made["spec"]["providerID"] == f"cn-hangzhou.{instance.id}"
    assert made["metadata"]["name"] == f"cn-hangzhou.{instance.address}"
    assert made["spec"]["taints"] == [
        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
        {"key": "a", "value": "b", "effect": "NoSchedule"},
    ]
    labels = made["metadata"]["labels"]
    assert labels["team"] == "blue"
    assert labels["node.kubernetes.io/instance-type"] == "ecs.g7.large"
    assert labels["topology.kubernetes.io/zone"] == "cn-hangzhou-b"
    assert labels["kubernetes.io/arch"] == "amd64"


def test_a_node_has_pods_and_reservation_as_ack_gives_them(node):
    """ecs.g7.xlarge under Terway: 48 pods, 80m and 783Mi + 200Mi kept."""
    status = node(instance_type="ecs.g7.xlarge")["status"]

    assert status["capacity"]["pods"] == "48"
    assert status["allocatable"]["cpu"] == "3920m"
    kept = _mebi(status["capacity"]["memory"]) - _mebi(status["allocatable"]["memory"])
    assert kept == 983


def test_a_node_has_its_configured_max_pods(node):
    status = node(f"--node-config {node_config(maxPods=20)}")["status"]

    assert status["capacity"]["pods"] == "20"


def test_configured_reservations_replace_those_of_ack(node):
    config = node_config(kubeReserved={"cpu": "500m"}, systemReserved={"cpu": "100m"})

    assert node(f"--node-config {config}")["status"]["allocatable"]["cpu"] == "1400m"


def test_under_flannel_the_pods_of_a_node_follow_from_its_cidr(cloud, node):
    cluster = cloud.clusters.get(cloud.world.cluster)
    cluster.network, cluster.node_cidr_mask = "Flannel", "26"

    try:
        assert node()["status"]["capacity"]["pods"] == "64"
    finally:
        cloud.reset()


def test_an_instance_with_a_gpu_reports_it(node):
    capacity = node(instance_type="ecs.gn7i-c8g1.2xlarge")["status"]["capacity"]

    assert capacity["nvidia.com/gpu"] == "1"


def test_an_arm_instance_becomes_an_arm_node(node):
    made = node(instance_type="ecs.g8y.large", architecture="arm64")

    assert made["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"


def test_the_kubelet_uses_the_formatted_data_disk(cloud, launch):
    (instance_id,) = launch.run(
        UserData=encoded(launch.script(format_disk=True)),
        DataDisk=[{"Size": 100, "Category": "cloud_essd"}],
    )

    assert cloud.node(instance_id)["status"]["capacity"]["ephemeral-storage"] == "100Gi"


def test_an_instance_registers_after_its_boot_time(cloud, node):
    cloud.behaviour.boot_seconds = 45

    assert node() is None
    cloud.time.advance(45)
    assert len(cloud.nodes()) == 1


@pytest.mark.parametrize(
    ("user_data", "why"),
    [
        ("#!/bin/sh\necho hello\n", "the user data does not join"),
        ("echo hello\n", "does not begin with #!"),
        (
            "#!/bin/sh\ncurl x/attach_node.sh | bash -s -- --openapi-token a.b\n",
            "the token of the attach script had expired, or is none of ACK's",
        ),
        (
            "#!/bin/sh\ncurl x/attach_node.sh | bash -s -- --taints a=b\n",
            "cannot read the taint 'a=b'",
        ),
        (
            "#!/bin/sh\ncurl x/attach_node.sh | bash -s -- --node-config e30\n",
            "--node-config is not base64 of JSON",
        ),
        (
            "#!/bin/sh\ncurl x/attach_node.sh | bash -s -- --token a\r --labels a=b\n",
            "carriage return",
        ),
    ],
)
def test_invalid_user_data_makes_no_node(cloud, launch, user_data, why):
    (instance_id,) = launch.run(UserData=encoded(user_data))

    assert cloud.node(instance_id) is None
    assert why in cloud.kubelets.boot_failure(cloud.instance(instance_id))


def test_an_expired_token_lets_no_instance_register(cloud, launch):
    script = launch.script()
    lasting = launch.script(expired=int(cloud.time().timestamp()) + 6 * 3600)
    cloud.time.advance(3601)

    (late,) = launch.run(UserData=encoded(script))
    (in_time,) = launch.run(UserData=encoded(lasting))

    assert cloud.node(late) is None
    assert cloud.node(in_time) is not None


def test_a_revoked_token_lets_no_instance_register(cloud, launch):
    revoked = launch.script()
    cloud.clusters.revoke_tokens()

    (late,) = launch.run(UserData=encoded(revoked))
    (in_time,) = launch.run(UserData=encoded(launch.script()))

    assert cloud.node(late) is None
    assert cloud.node(in_time) is not None


def test_an_instance_that_fails_to_boot_makes_no_node(cloud, node):
    cloud.kubelets.failing = lambda _instance: True

    assert node() is None


def test_parts_of_an_archive_run_one_after_the_other():
    shell = 'text/x-shellscript; charset="us-ascii"'
    attach = "#!/bin/bash\ncurl x/attach_node.sh | bash -s -- --token a --labels k=v"

    settings = read_user_data(
        archive(
            (shell, "#!/bin/sh\necho before"),
            (shell, attach),
            ("text/cloud-config", "a: b"),
            (shell, "#!/bin/sh\necho after"),
        ).encode()
    )

    assert settings.labels == {"k": "v"}
    assert [each.splitlines()[1] for each in settings.ran_before] == ["echo before"]
    assert [each.splitlines()[1] for each in settings.ran_after] == ["echo after"]


def test_an_instance_registers_outside_ack_by_kubeadm_or_k3s(cloud, launch):
    kubeadm = (
        "#!/bin/sh\n"
        'KUBELET_EXTRA_ARGS="--node-labels=a=b --max-pods=30'
        ' --register-with-taints=karpenter.sh/unregistered:NoExecute"\n'
        "kubeadm join 10.0.0.1:6443 --token t\n"
    )
    k3s = "#!/bin/sh\nk3s agent --node-label a=b --node-taint k=v:NoSchedule\n"
    (first,) = launch.run(UserData=encoded(kubeadm))
    (second,) = launch.run(UserData=encoded(k3s))

    one, other = cloud.node(first), cloud.node(second)

    assert one["status"]["capacity"]["pods"] == "30"
    assert [each["key"] for each in one["spec"]["taints"]] == ["karpenter.sh/unregistered"]
    assert other["metadata"]["labels"]["a"] == "b"
    assert other["spec"]["taints"] == [{"key": "k", "value": "v", "effect": "NoSchedule"}]


def test_a_running_problem_detector_reports_a_reclaim(cloud, node):
    node(SpotStrategy="SpotAsPriceGo")
    (instance,) = cloud.living()
    cloud.kubelets.reports_expiry = True

    def condition():
        (node_condition,) = cloud.node(instance.id)["status"]["conditions"]
        return node_condition["type"], node_condition["status"]

    assert condition() == ("InstanceExpired", "False")
    cloud.reclaim(instance.id)
    assert condition() == ("InstanceExpired", "True")


def _mebi(text):
    assert text.endswith("Mi"), text
    return int(text.removesuffix("Mi"))
