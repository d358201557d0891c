"""Everything of a document is converted or reported: unknown fields, kinds without a provider, errors."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from karpenter_core.cli.convert.node_pools import NodeClassKinds, node_pool_conversions
from karpenter_core.cli.convert.session import convert_documents
from karpenter_core.cli.convert.yaml_text import plain_value, read_text, write_text
from karpenter_core.cli.main import build_app
from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract import Conversion

PROVISIONER = """
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata:
  name: default
spec:
  providerRef:
    name: default
"""

CLASS = {"AWSNodeTemplate": ("karpenter.k8s.aws", "EC2NodeClass")}


def convert(*arguments: str, text: str):
    return CliRunner().invoke(build_app(["convert"]), ["convert", *arguments], input=text)


def changes(text, conversions=None):
    """Return the changes of the first document by path in the document."""
    conversions = (
        node_pool_conversions(NodeClassKinds(successors=CLASS))
        if conversions is None
        else conversions
    )
    return convert_documents(read_text("input", text), conversions)[0]


def test_an_unknown_field_is_reported_and_is_an_error():
    result = convert("-", text=PROVISIONER + "  turbo: true\n")

    assert result.exit_code == 1
    assert "! spec.turbo = true (no field of this name is known)" in " ".join(result.stderr.split())
    assert "#   spec.turbo: no field of this name is known" in result.stdout


def test_comments_of_a_field_that_is_left_out_stay_in_the_file():
    text = (
        PROVISIONER
        + "  # for Jenkins\n  kubeletConfiguration:\n    containerRuntime: dockerd # old\n"
    )

    assert "# for Jenkins" in convert("-", text=text).stdout
    assert "# old" in convert("-", text=text).stdout


def test_kubelet_settings_of_a_node_class_outside_the_input_are_reported_with_their_values():
    text = PROVISIONER + "  kubeletConfiguration:\n    maxPods: 20\n"

    result = convert("-o", "json", "-", text=text)

    document = json.loads(result.stdout)["documents"][0]
    (change,) = [
        each for each in document["changes"] if each["source"] == "spec.kubeletConfiguration"
    ]
    assert change["value"] == {"maxPods": 20}
    assert change["reason"] == (
        'it belongs to EC2NodeClass "default" (field spec.kubelet), which is not in the input'
    )


def test_kubelet_settings_go_to_a_node_class_of_today_that_is_in_the_input():
    node_class = """---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node # of CloudFormation
"""
    text = PROVISIONER + "  kubeletConfiguration:\n    maxPods: 20\n" + node_class

    written = convert("-", text=text).stdout.split("---\n")[1]

    assert yaml.safe_load(written)["spec"] == {"role": "node", "kubelet": {"maxPods": 20}}
    assert "# of CloudFormation" in written


def test_equal_kubelet_settings_share_a_node_class():
    pool = """
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {{name: {name}}}
spec:
  template:
    spec:
      nodeClassRef: {{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, name: one}}
      kubelet: {{maxPods: 20}}
      requirements: []
---
"""
    node_class = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: one}\n"
    text = pool.format(name="web") + pool.format(name="batch") + node_class

    documents = list(yaml.safe_load_all(convert("-", text=text).stdout))

    assert [each["metadata"]["name"] for each in documents] == ["web", "batch", "one"]
    assert documents[2]["spec"] == {"kubelet": {"maxPods": 20}}


def test_a_document_that_cannot_be_converted_does_not_keep_others_from_it():
    both = PROVISIONER + "  consolidation: {enabled: true}\n  ttlSecondsAfterEmpty: 30\n"

    result = convert("-", text=f"{both}---{PROVISIONER.replace('default', 'good')}")

    assert result.exit_code == 1
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(result.stdout)] == ["good"]
    assert (
        "spec.consolidation.enabled and spec.ttlSecondsAfterEmpty exclude each other"
        in " ".join(result.stderr.split())
    )


def test_a_kind_that_no_provider_converts_is_named():
    text = PROVISIONER.replace("name: default\n", "name: default\n    kind: MoonTemplate\n")
    text = text.replace(
        "metadata:\n  name: default\n    kind: MoonTemplate", "metadata:\n  name: default"
    )

    assert "no installed provider converts MoonTemplate" in changes(text).error


def test_objects_that_controllers_write_are_left_out():
    result = changes("apiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata: {name: a}\n")

    assert (result.texts, result.is_converted) == ((), True)
    assert {change.fate.value for change in result.changes} == {"left out"}


def test_other_objects_are_written_as_they_are():
    text = "# mine\napiVersion: v1\nkind: ConfigMap # odd   spacing\nmetadata:   {name:   a}\n"

    assert convert("-", text=text).stdout == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "standard input: line 1: is not YAML"),
        pytest.param("a: " + "[" * 1000, "standard input: is nested too deeply", id="deep"),
        ("just text", "standard input: is neither an object nor a list of objects"),
        ("# nothing\n", "nothing to convert"),
        ("a: &a [1,1,1,1,1,1,1,1]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 8)}]\n" for n in range(7)
        ), "aliases make it larger than 100000 values"),
    ],
)  # fmt: skip
def test_input_that_cannot_be_read_is_named(text, message):
    with pytest.raises(BadInputError, match=message.replace(".", r"\.")):
        CliRunner().invoke(
            build_app(["convert"]), ["convert", "-"], input=text, catch_exceptions=False
        )


def test_a_manifest_that_an_api_server_would_refuse_is_named():
    text = """
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
metadata: {name: a}
spec:
  amiFamily: AL2
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
"""

    stderr = " ".join(convert("-", text=text).stderr.split())

    assert 'An API server would refuse EC2NodeClass "a": spec' in stderr
    assert "exactly one of role and instanceProfile is needed" in stderr


keys = st.text("abcde", min_size=1, max_size=3)
values = st.recursive(
    st.integers(0, 9) | st.booleans() | st.text("xyz '\":#\n-", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, max_size=4), st.data())
def test_every_field_of_any_document_is_kept_moved_or_reported(document, data):
    """A conversion that moves some fields, keeps some, and forgets the rest."""
    names = sorted(document)
    choice = {
        name: data.draw(st.sampled_from(["keep", "move", "leave", "forget"])) for name in names
    }

    def run(draft):
        for name, what in choice.items():
            if what == "keep":
                draft.keep(name)
            elif what == "move":
                draft.move(name, f"there.{name}")
            elif what == "leave":
                draft.leave_out(name, "not wanted")

    rule = Conversion(kind="any", accepts=lambda _: True, convert=run, successors={})
    text = yaml.safe_dump(document)
    (result,) = convert_documents(read_text("input", text), [rule]) if document else (None,)
    if result is None:
        return

    written = yaml.safe_load(result.texts[0]) if result.texts else {}
    for name, value in document.items():
        fates = [change.fate.value for change in result.changes if change.source == name]
        expected = {"keep": [], "move": ["moved"], "leave": ["left out"], "forget": ["unknown"]}
        is_empty = value in (None, {}, []) and choice[name] == "forget"
        assert fates == (["left out"] if is_empty else expected[choice[name]])
        if choice[name] == "keep":
            assert written[name] == value
        if choice[name] == "move":
            assert written["there"][name] == value


@given(st.dictionaries(keys, values, min_size=1, max_size=4))
def test_a_document_that_is_read_and_written_keeps_its_values(document):
    text = yaml.safe_dump(document, sort_keys=False)

    (read,) = read_text("input", text)

    assert yaml.safe_load(write_text(read)) == document == plain_value(read.node)


@given(st.dictionaries(keys, st.integers(0, 9), min_size=1, max_size=5), st.data())
def test_comments_stay_at_their_fields(fields, data):
    lines = []
    for name, value in fields.items():
        if data.draw(st.booleans()):
            lines.append(f"# above {name}")
        behind = f"  # behind {name}" if data.draw(st.booleans()) else ""
        lines.append(f"{name}: {value}{behind}")
    text = "\n".join(lines) + "\n"

    (read,) = read_text("input", text)

    assert write_text(read) == text


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ({"nodeSelector": {"agentpool": "user"}}, "agentpool"),
        ({"key": "eks.amazonaws.com/nodegroup", "operator": "In", "values": ["web"]},
         "eks.amazonaws.com/nodegroup"),
        ({"key": "eks.amazonaws.com/nodegroup", "operator": "NotIn", "values": ["web"]}, None),
        ({"nodeSelector": {"team": "web"}}, None),
    ],
)  # fmt: skip
def test_pods_that_only_nodes_of_a_group_can_run_are_left_to_do(spec, label):
    """They would stay pending when the group is gone."""
    if "key" in spec:
        terms = {"nodeSelectorTerms": [{"matchExpressions": [spec]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec = {"affinity": {"nodeAffinity": required}}
    workload = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": spec}},
    }
    text = yaml.safe_dump({"apiVersion": "apps/v1", **workload})

    result = convert("-", text=text)

    assert yaml.safe_load(result.stdout) == yaml.safe_load(text)
    assert ("its pods need nodes with the label" in result.stderr) is bool(label)
    assert (label or "") in result.stderr
    assert result.exit_code == 0
