"""Tests images and user data of launches (cases 31, 71 to 76, and 78)."""

from __future__ import annotations

import base64
import json
import re
from email import message_from_bytes
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.api.nodeclaim import TaintSpec
from karpenter_core.errors import BadInputError, CloudProviderError, LaunchFailedError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.testing.builders import instance_type
from karpenter_provider_alibabacloud.launch.boot_configuration import BootConfiguration
from providers.alibabacloud.tests.launch.processes import (
    ON_DEMAND,
    ONLY_LARGE,
    SPOT,
    claim_of,
    class_of,
)

SCRIPT = "DescribeClusterAttachScripts"
ARCHIVE = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/x-shellscript

echo after
--b
Content-Type: text/x-shellscript; stage=pre

echo before
--b--
"""


def parts_of(process, outcome):
    """Return the scripts of an instance's user data, in the order in which they run."""
    message = message_from_bytes(process.launched(outcome).user_data)
    assert not message.defects
    return [part.get_payload().strip() for part in message.get_payload()]


def flag(process, outcome, name):
    """Return the value of a flag of ACK's script."""
    command = next(part for part in parts_of(process, outcome) if "--openapi-token" in part)
    return re.search(rf" --{name} (\S+)", command)[1]


def config(process, outcome):
    return json.loads(base64.b64decode(flag(process, outcome, "node-config")))["kubelet_config"]


def test_a_kubelet_takes_as_many_pods_as_were_planned_with(process):
    """Case 31: the number is that of the listed type, from whichever field."""
    xlarge = (INSTANCE_TYPE, "ecs.g7.xlarge")
    for name, fields, pods in (
        ("a", {"maxPods": 20}, 20),
        ("b", {"maxPods": 20, "podsPerCore": 4}, 16),
    ):
        node_class = class_of(process.cloud, kubeletConfiguration=fields)
        outcome = process.launch_one(claim_of(name, ON_DEMAND, xlarge), node_class)

        assert config(process, outcome) == {"maxPods": pods}
        assert outcome.capacity["pods"] == pods
        node = process.cloud.node(outcome.provider_id)
        assert node["status"]["capacity"]["pods"] == str(pods)


def test_unset_kubelet_settings_add_no_argument(process, node_class):
    """Case 73: the least that ACK's script takes."""
    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert flag(process, outcome, "node-config") == "eyJrdWJlbGV0X2NvbmZpZyI6e319"
    assert outcome.capacity["pods"] == 15


def test_the_script_has_taints_and_labels_of_the_claim(process, node_class):
    """Cases 71 and 72: with the capacity type that was chosen."""
    claim = claim_of("a", SPOT, ONLY_LARGE)
    young = TaintSpec(key="karpenter.sh/unregistered", effect="NoExecute")
    team = TaintSpec(key="team", value="web", effect="NoSchedule")
    claim = claim.model_copy(
        update={"spec": claim.spec.model_copy(update={"taints": (young, team)})}
    )

    outcome = process.launch_one(claim, node_class)

    assert flag(process, outcome, "taints") == (
        "team=web:NoSchedule,karpenter.sh/unregistered:NoExecute"
    )
    labels = flag(process, outcome, "labels").split(",")
    assert labels[:2] == ["k8s.aliyun.com=true", f"ack.aliyun.com={process.cloud.world.cluster}"]
    assert labels[2:] == sorted(labels[2:])
    assert "karpenter.sh/capacity-type=spot" in labels


def test_equal_claims_have_equal_user_data(process, node_class):
    """Case 72: byte for byte, also in another call, or there would be a call for each."""
    first, second = (
        process.launched(process.launch_one(claim_of(name, ON_DEMAND, ONLY_LARGE), node_class))
        for name in ("a", "b")
    )

    assert first.user_data == second.user_data


def test_the_users_parts_run_around_acks_script(process):
    """Cases 74 and 75."""
    archive = class_of(process.cloud, userData=ARCHIVE)
    before, ack, after = parts_of(process, process.launch_one(claim_of("a", ON_DEMAND), archive))
    assert (before, after) == ("echo before", "echo after")
    assert "--openapi-token" in ack

    plain = class_of(process.cloud, userData="echo done")
    ack, after = parts_of(process, process.launch_one(claim_of("b", ON_DEMAND), plain))
    assert "--openapi-token" in ack
    assert after == "echo done"


@pytest.mark.parametrize(
    "text",
    [
        "MIME-Version: 1.0\nbroken",
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\nno parts',
        'Content-Type: multipart/mixed; boundary="b"\n\n--b\n\necho no end\n',
    ],
    ids=["no body", "no parts", "no end"],
)
def test_an_unreadable_user_data_archive_launches_nothing(process, text):
    """Case 76: the claim fails for good, with the field's name."""
    outcome = process.launch_one(claim_of("a", ON_DEMAND), class_of(process.cloud, userData=text))

    assert isinstance(outcome, LaunchFailedError)
    assert 'ECSNodeClass "default": spec.userData is no MIME archive' in str(outcome)
    assert not process.sent()
    assert not process.cloud.living()


def test_classes_that_format_disks_have_a_script_of_their_own_for_six_hours(process):
    """Case 78."""
    disks = {"dataDisks": [{"volumeSize": "40Gi"}]}
    plain = class_of(process.cloud, **disks)
    formatting = class_of(process.cloud, **disks, formatDataDisk=True)

    def launch(name, node_class):
        outcome = process.launch_one(claim_of(name, ON_DEMAND, ONLY_LARGE), node_class)
        assert isinstance(outcome, LaunchedInstance)
        return any("--auto-fdisk true" in part for part in parts_of(process, outcome))

    assert [launch("a", plain), launch("b", formatting)] == [False, True]
    assert process.cloud.calls.count(SCRIPT) == 2

    process.clock.forward(6 * 3600 - 60)
    assert [launch("c", plain), launch("d", formatting)] == [False, True]
    assert process.cloud.calls.count(SCRIPT) == 2

    process.clock.forward(60)
    launch("e", plain)
    assert process.cloud.calls.count(SCRIPT) == 3


@pytest.mark.parametrize(
    ("error", "expected", "reason"),
    [
        (CloudProviderError("types are not known"), CloudProviderError, None),
        (BadInputError("spec.kubelet.maxPods: no"), LaunchFailedError, "InvalidNodeClass"),
    ],
)
def test_claims_whose_boot_configuration_fails_are_told_why(
    process, node_class, monkeypatch, error, expected, reason
):
    """Each claim, of every capacity type; nothing is sent."""
    asked = process.requests(
        claim_of("a", ON_DEMAND),
        claim_of("b", ON_DEMAND),
        claim_of("c", SPOT),
        node_class=node_class,
    )

    def failing(*_):
        raise error

    monkeypatch.setattr(type(process.offered), "max_pods", failing)
    outcomes = process.launcher.launch(asked)

    assert [type(outcome) for outcome in outcomes] == [expected] * 3
    assert {str(outcome) for outcome in outcomes} == {str(error)}
    assert {getattr(outcome, "reason", None) for outcome in outcomes} == {reason}
    assert not process.sent()


def test_types_of_one_architecture_and_number_of_pods_share_their_user_data():
    """A launch asks for many types, and each text takes a rendered script."""
    built = []

    def render(*_, architecture, max_pods, **__):
        built.append((architecture, max_pods))
        return f"{architecture} {max_pods}"

    pods = {"a": 10, "b": 10, "c": 20, "arm": 10}
    configuration = BootConfiguration(
        None,
        None,
        capacity_type="spot",
        types=SimpleNamespace(image_for=lambda _: str, max_pods=lambda _: pods.get),
        bootstrapper=SimpleNamespace(user_data=render),
    )
    types = [instance_type(name, arch="arm64" if name == "arm" else "amd64") for name in pods]
    texts = [configuration.user_data(each) for each in (*types, *types)]
    assert texts == ["amd64 10", "amd64 10", "amd64 20", "arm64 10"] * 2
    assert built == [("amd64", 10), ("amd64", 20), ("arm64", 10)]
