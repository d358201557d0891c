"""User data of nodes (acceptance cases 31, 69, 71-76 and 79)."""

from __future__ import annotations

import base64
import json
import re
from email import message_from_string

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClassRef, TaintSpec
from karpenter_core.errors import BadInputError
from karpenter_provider_alibabacloud.bootstrap.user_data import (
    LARGEST_BYTES,
    BootstrapInput,
    ack_user_data,
    custom_user_data,
    node_config,
    node_labels,
)

SCRIPT = "curl http://acs/attach_node.sh | bash -s -- --openapi-token 1.2 --cluster-id c1"
REF = NodeClassRef(group="karpenter.k8s.alibabacloud", kind="ECSNodeClass", name="default")


def claim(labels=None, taints=(), startup_taints=()):
    return NodeClaim(
        metadata=ObjectMeta(name="web-x7k2p", labels=labels or {}),
        spec=NodeClaimSpec(
            node_class_ref=REF, taints=tuple(taints), startup_taints=tuple(startup_taints)
        ),
    )


def bootstrap(user_data="", *, node_claim=None, **more):
    fields = {"kubelet": {}, "capacity_type": "spot", "user_data": user_data, **more}
    return BootstrapInput(node_claim=node_claim or claim(), **fields)


def text_of(encoded):
    return base64.b64decode(encoded).decode()


def parts_of(encoded):
    """Return the archive's parts as any reader of MIME sees them."""
    message = message_from_string(text_of(encoded))
    assert not message.defects
    return [(part["Content-Type"], part.get_payload()) for part in message.get_payload()]


def merged(user_data="", **more):
    return ack_user_data(SCRIPT, bootstrap(user_data, **more), cluster_id="c1")


def flag(encoded, name):
    (_, command) = next(part for part in parts_of(encoded) if "--labels" in part[1])
    return re.search(rf" --{name} (\S+)", command)[1]


def test_the_archive_is_written_as_acks_nodes_have_always_had_it():
    """Byte for byte: equal user data is what launches are gathered by."""
    assert text_of(merged()) == (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
        '--//\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n'
        f"#!/bin/bash\n\n{SCRIPT}"
        " --labels k8s.aliyun.com=true,ack.aliyun.com=c1,karpenter.sh/capacity-type=spot"
        " --node-config eyJrdWJlbGV0X2NvbmZpZyI6e319"
        " --taints karpenter.sh/unregistered:NoExecute\n\n"
        "\n--//--\n"
    )


def test_taints_end_with_that_of_young_nodes_once():
    """Case 71: even where the claim has it, and wherever."""
    young = TaintSpec(key="karpenter.sh/unregistered", effect="NoExecute")
    team = TaintSpec(key="team", value="web", effect="NoSchedule")
    start = TaintSpec(key="cilium", effect="NoExecute")

    for taints in ([team], [young, team]):
        given = flag(merged(node_claim=claim(taints=taints, startup_taints=[start])), "taints")
        assert given == ("team=web:NoSchedule,cilium:NoExecute,karpenter.sh/unregistered:NoExecute")


def test_labels_begin_with_acks_and_are_sorted():
    """Case 72."""
    labels = {"team": "web", "app": "shop", "karpenter.sh/nodepool": "default"}
    backwards = dict(reversed(labels.items()))

    given = flag(merged(node_claim=claim(labels)), "labels")

    assert given == (
        "k8s.aliyun.com=true,ack.aliyun.com=c1,"
        "app=shop,karpenter.sh/capacity-type=spot,karpenter.sh/nodepool=default,team=web"
    )
    assert merged(node_claim=claim(labels)) == merged(node_claim=claim(backwards))


def test_labels_that_a_kubelet_refuses_are_left_to_the_core():
    """It would not start with them."""
    labels = {
        "node-restriction.kubernetes.io/pool": "a",
        "kubernetes.io/custom": "a",
        "topology.kubernetes.io/zone": "cn-hangzhou-b",
        "node.kubernetes.io/instance-type": "ecs.g7.large",
        "karpenter.k8s.alibabacloud/instance-cpu": "2",
    }

    assert set(labels) - set(node_labels(labels, capacity_type="spot")) == {
        "node-restriction.kubernetes.io/pool",
        "kubernetes.io/custom",
    }


def test_a_shell_sees_each_value_as_it_is():
    """A manifest is not trusted with a shell on the node."""
    command = parts_of(merged(node_claim=claim({"team": "$(reboot)"})))[0][1]

    assert "'k8s.aliyun.com=true," in command
    assert "team=$(reboot)' --node-config" in command


@pytest.mark.parametrize(
    ("kubelet", "max_pods", "encoded"),
    [
        ({}, None, "eyJrdWJlbGV0X2NvbmZpZyI6e319"),
        ({}, 110, "eyJrdWJlbGV0X2NvbmZpZyI6eyJtYXhQb2RzIjoxMTB9fQ=="),
        ({"maxPods": 110}, None, "eyJrdWJlbGV0X2NvbmZpZyI6eyJtYXhQb2RzIjoxMTB9fQ=="),
        (
            {"maxPods": 250, "podsPerCore": 4},
            110,
            "eyJrdWJlbGV0X2NvbmZpZyI6eyJtYXhQb2RzIjoxMTB9fQ==",
        ),
    ],
)
def test_max_pods_is_in_the_kubelet_arguments(kubelet, max_pods, encoded):
    """Cases 31 and 73."""
    assert node_config(kubelet, max_pods=max_pods) == encoded


def test_every_kubelet_setting_of_the_user_is_in_the_kubelet_arguments():
    """Section 5.5: what the catalogue reckons with is what the node does."""
    kubelet = {"kubeReserved": {"cpu": "200m"}, "cpuCFSQuota": False, "evictionHard": {"a": "5%"}}

    config = json.loads(base64.b64decode(node_config(kubelet, max_pods=20)))

    assert config == {"kubelet_config": {**kubelet, "maxPods": 20}}


ARCHIVE = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/x-shellscript; charset="us-ascii"

echo after
--b
Content-Type: text/x-shellscript; stage=pre

echo first
--b
Content-Type: text/cloud-config; stage=pre

packages: []
--b
Content-Type: text/x-shellscript; charset=us-ascii; stage="pre"

echo second
--b--
"""


def test_scripts_of_the_stage_pre_run_before_acks():
    """Case 74: in their order, and no other kind of part."""
    contents = [content.strip() for _, content in parts_of(merged(ARCHIVE))]

    assert contents[:2] == ["echo first", "echo second"]
    assert contents[2].startswith("#!/bin/bash\n\ncurl")
    assert contents[3:] == ["echo after", "packages: []"]


def test_plain_text_is_a_script_that_runs_after_acks():
    """Case 75."""
    with_text = parts_of(merged("#!/bin/sh\necho done\n"))

    assert with_text[1] == ('text/x-shellscript; charset="us-ascii"', "#!/bin/sh\necho done\n")
    assert len(with_text) == 2
    assert len(parts_of(merged(""))) == len(parts_of(merged("  \n"))) == 1


def test_an_unreadable_content_type_is_no_part_of_the_pre_stage():
    archive = ARCHIVE.replace("text/x-shellscript; stage=pre", ";;stage=pre")

    contents = [content.strip() for _, content in parts_of(merged(archive))]

    assert contents[0] == "echo second"
    assert contents.index("echo first") > 1


def test_a_malformed_archive_is_an_error_that_names_the_field():
    """Case 76."""
    with pytest.raises(BadInputError, match=r"spec\.userData"):
        merged('MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\nno parts')


def test_more_than_ecs_takes_is_refused():
    """Case 69: before it is written in base64, with all that is ours in it."""
    largest = LARGEST_BYTES - len(text_of(merged("x")))

    assert len(text_of(merged("x" + "y" * largest))) == LARGEST_BYTES
    with pytest.raises(BadInputError, match="ECS takes 32,768 at most"):
        merged("x" + "y" * (largest + 1))


def test_another_cluster_gets_the_users_text_as_it_is():
    """Case 79."""
    text = "#!/bin/sh\r\necho {{unknown}} ünïcode\n"

    assert base64.b64decode(custom_user_data(bootstrap(text))) == text.encode()
    assert custom_user_data(bootstrap("")) == ""
    with pytest.raises(BadInputError, match="32,768"):
        custom_user_data(bootstrap("x" * (LARGEST_BYTES + 1)))


def test_user_data_outside_ack_can_use_labels_and_taints_of_the_node():
    text = "join --node-labels={{labels}} --taints={{taints}} --max={{maxPods}} # {{nodeClaim}}"
    node_claim = claim({"team": "web"}, taints=[TaintSpec(key="a", effect="NoSchedule")])

    made = text_of(custom_user_data(bootstrap(text, node_claim=node_claim, max_pods=64)))

    assert made == (
        "join --node-labels=karpenter.sh/capacity-type=spot,team=web "
        "--taints=a:NoSchedule,karpenter.sh/unregistered:NoExecute --max=64 # web-x7k2p"
    )
