"""Manifests as they are in the field: anchors, lists in lists, directives, empty and wrong fields."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.cli.convert.test_golden import GOLDEN, convert

POOL = """\
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: web}
spec:
  template:
    spec:
      nodeClassRef: {name: default}
      requirements: []
"""
TEMPLATE = """\
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: default}
spec:
  instanceProfile: nodes
  subnetSelector: {aws-ids: subnet-1}
  securityGroupSelector: {aws-ids: sg-1}
"""
PROVISIONER = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: web}
spec:
  providerRef: {name: default}
  kubeletConfiguration: {maxPods: 20}
"""


def written(text):
    return list(yaml.safe_load_all(convert("-", text=text).stdout))


@pytest.mark.parametrize(("metadata", "name"), [("{name: web}", "web"), ("{}", "default")])
def test_settings_in_a_provisioner_become_a_node_class_of_its_name(metadata, name):
    """One without a name cannot be applied either; the result still shows what belongs together."""
    manifest = PROVISIONER.replace("{name: web}", metadata).replace(
        "providerRef: {name: default}",
        "provider: {subnetSelector: {aws-ids: subnet-1}, securityGroupSelector: {aws-ids: sg-1}}",
    )
    made = {each["kind"]: each for each in written(manifest) if each}
    assert made["EC2NodeClass"]["metadata"]["name"] == name
    assert made["NodePool"]["spec"]["template"]["spec"]["nodeClassRef"]["name"] == name


def test_lists_in_lists_are_split():
    """`kubectl get nodepools -o yaml` gives a List, an API server a NodePoolList."""
    inner = {"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePoolList"}
    inner["items"] = [yaml.safe_load(POOL)]
    outer = {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(TEMPLATE), inner]}

    kinds = [each["kind"] for each in written(yaml.safe_dump(outer))]

    assert kinds == ["EC2NodeClass", "NodePool"]


def test_a_merged_mapping_takes_its_own_values():
    """Anchors and merge keys are written out."""
    text = POOL.replace(
        "  template:\n", "  limits:\n    <<: {cpu: 10, memory: 1Gi}\n    cpu: 20\n  template:\n"
    )
    result = convert("-", text=text)

    assert yaml.safe_load(result.stdout)["spec"]["limits"] == {"memory": "1Gi", "cpu": 20}
    assert result.stdout.count("cpu:") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spec:\n  weight: 1\n  weight: 2\n", 'line 3: key "weight" is duplicated'),
        ("spec:\n  ? [a]\n  : 1\n", "line 2: a key is no string"),
        ("spec: !Ref x\n", 'line 1: tag "!Ref" is not known'),
        ("spec: !!set {a, b}\n", 'line 1: tag "tag:yaml.org,2002:set" is not known'),
        ("a: 1\nspec: !!float x\n", 'line 2: "x" is no value of tag "tag:yaml.org,2002:float"'),
        ("spec: !!bool x\n", 'line 1: "x" is no value of tag "tag:yaml.org,2002:bool"'),
        (f"spec: {'9' * 5000}\n", f'line 1: "{"9" * 60}..." is no value of tag'),
        ("spec: &a [*a]\n", "an alias stands within the value that it names"),
    ],
)
def test_text_that_readers_understand_differently_is_refused(text, message):
    result = convert("-", text=text)

    assert result.exit_code != 0
    assert message in str(result.exception)


def test_plain_signs_that_yaml_reserves_are_text():
    """An equals sign has a tag of its own."""
    result = convert("-", text="a: =\nb: <<\n")

    assert result.stdout == "a: =\nb: <<\n"


def test_a_directive_is_no_part_of_a_document():
    result = convert("-", text=f"%YAML 1.1\n---\n# first\na: 1\n---\n{POOL}")

    assert result.stdout.startswith("# first\na: 1\n---\n")
    assert next(yaml.safe_load_all(result.stdout)) == {"a": 1}


def test_windows_line_ends_and_a_byte_order_mark_are_read():
    text = "\ufeff" + POOL.replace("  template", "  # a comment\n  template").replace("\n", "\r\n")
    result = convert("-", text=text)

    assert yaml.safe_load(result.stdout)["apiVersion"] == "karpenter.sh/v1"
    assert "  # a comment\n" in result.stdout


def test_empty_fields_are_no_unknown_fields():
    """An API server drops them too."""
    result = convert("-", text=PROVISIONER + "  requirements: null\n  limits: {}\n---\n" + TEMPLATE)

    assert result.exit_code == 0
    assert "spec.requirements = null (it is empty)" in " ".join(result.stderr.split())


def test_kubelet_settings_of_a_class_that_is_not_written_are_reported():
    """They would be lost with it."""
    refused = TEMPLATE + "  amiSelector: {aws-ids: ami-1, Name: x}\n"
    result = convert("-", text=f"{PROVISIONER}---\n{refused}")

    said = " ".join(result.stderr.split())
    assert 'AWSNodeTemplate "default" (karpenter.k8s.aws/v1alpha1): not converted' in said
    assert '- spec.kubeletConfiguration = {"maxPods": 20}' in said
    assert result.exit_code == 1


@pytest.mark.parametrize("field", ["metadata", "spec", "template", "nodeClassRef", "disruption"])
@pytest.mark.parametrize("value", ["text", 3, [1], None, True])
@pytest.mark.parametrize("source", [POOL, PROVISIONER, TEMPLATE])
def test_a_field_of_another_type_ends_in_a_report(field, value, source):
    """With an exit code of the command, and no traceback."""
    manifest = yaml.safe_load(source)
    holder = manifest if field in {"metadata", "spec"} else manifest["spec"]
    if field == "nodeClassRef":
        holder = holder.setdefault("template", {}).setdefault("spec", {})
    holder[field] = value
    result = convert("-", text=yaml.safe_dump(manifest))

    assert result.exit_code in {0, 1}
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stderr


def test_kubelet_settings_that_the_schema_of_the_node_class_allows_are_kept():
    """EC2NodeClasses have every setting of a kubelet; containerd is the only runtime today."""
    rates = {"registryPullQPS": 500, "registryBurst": 100, "kubeAPIQPS": 200, "kubeAPIBurst": 100}
    pool = yaml.safe_load(POOL)
    pool["spec"]["template"]["spec"]["kubelet"] = {**rates, "containerRuntime": "containerd"}
    provisioner = yaml.safe_load(PROVISIONER)
    provisioner["spec"]["kubeletConfiguration"] = {**rates}
    for each in (pool, provisioner):
        result = convert("-", text=yaml.safe_dump(each) + "---\n" + TEMPLATE)
        documents = yaml.safe_load_all(result.stdout)

        (node_class,) = (one for one in documents if one["kind"] == "EC2NodeClass")
        assert node_class["spec"]["kubelet"] == rates
        assert "no kubelet setting" not in result.stderr
        assert "0 errors of admission" in " ".join(result.stderr.split())


def test_a_kubelet_setting_that_a_node_class_does_not_have_is_reported():
    ref = "{group: karpenter.k8s.alibabacloud, kind: ECSNodeClass, name: default}"
    text = POOL.replace("{name: default}", ref) + "      kubelet: {maxPods: 20, kubeAPIQPS: 5}\n"
    result = convert("-", text=text)

    said = " ".join(result.stderr.split())
    assert "kubeAPIQPS = 5 (ECSNodeClass has no kubelet setting of this name)" in said
    assert "maxPods" in said


@pytest.mark.parametrize("profile", ["nodes", ""])
def test_a_missing_instance_profile_is_told(profile):
    """The setting that it came from does not exist any more."""
    text = TEMPLATE if profile else TEMPLATE.replace("  instanceProfile: nodes\n", "")
    warnings = convert("-", text=text).stderr
    assert ("spec.instanceProfile is not set" in warnings) is not bool(profile)


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ("subnetSelector", "subnetSelectorTerms"),
        ("securityGroupSelector", "securityGroupSelectorTerms"),
    ],
)
def test_a_template_without_a_selector_is_converted_and_what_is_missing_is_told(selector, terms):
    template = yaml.safe_load(TEMPLATE)
    template["spec"].pop(selector, None)
    result = convert("-", text=yaml.safe_dump(template))
    (node_class,) = yaml.safe_load_all(result.stdout)
    assert terms not in node_class["spec"]
    assert f"{selector} is not set: EC2NodeClass needs spec.{terms}" in " ".join(
        result.stderr.split()
    )


def test_a_scale_set_without_a_name_gets_one():
    """Cut out of a larger answer; the name of the NodePool and the reference to its class agree."""
    scale_set = {
        "type": "Microsoft.Compute/virtualMachineScaleSets",
        "location": "eastus",
        "sku": {"name": "Standard_D4s_v5"},
        "virtualMachineProfile": {},
    }
    text = yaml.safe_dump([scale_set])
    documents = written(text)
    said = " ".join(convert("-", text=text).stderr.split())
    assert 'image and custom data of scale set "' in said
    assert {each["metadata"]["name"] for each in documents} == {"scale-set"}
    assert {each["kind"] for each in documents} == {"AKSNodeClass", "NodePool"}


@pytest.mark.parametrize("group", ["scaling-groups", "ess-groups"])
@pytest.mark.parametrize("user_data", ["ZWNo!byAx", "/w==", "Z"])
def test_user_data_that_is_no_text_in_base64_is_an_error_of_its_template(group, user_data):
    """Decoders that pass over characters of no meaning would write another script."""
    text = (GOLDEN / f"{group}.in.json").read_text()
    (before,) = set(re.findall(r'"UserData": "([^"]+)"', text))
    result = convert("-", text=text.replace(before, user_data))
    assert result.exit_code == 1
    assert "UserData is no text in base64" in " ".join(result.stderr.split())


WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: KEY, operator: In, values: [spot]}
"""
WITH_PROVIDER = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: web}
spec:
  provider:
    instanceProfile: nodes
    subnetSelector: {karpenter.sh/discovery: mine}
    securityGroupSelector: {karpenter.sh/discovery: mine}
"""


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (TEMPLATE + "  blockDeviceMappings: [[1]]\n", "blockDeviceMappings"),
        (TEMPLATE + "  blockDeviceMappings: [true]\n", "blockDeviceMappings"),
        (WORKLOAD.replace("KEY", "[spot]"), "0 not converted"),
        (POOL.replace("{name: web}", "{name: web, annotations: [5]}"), "annotations"),
        (POOL.replace("{name: web}", "{name: web, annotations: true}"), "annotations"),
        (
            WITH_PROVIDER + "  requirements: '{{ x }}'\n",
            'field "spec.template.spec.requirements": is no list',
        ),
    ],
)
def test_an_item_of_another_type_ends_in_a_report(text, reported):
    """Those that a template has not filled in, for example."""
    result = convert("-", text=text)

    assert isinstance(result.exception, SystemExit | None), result.exception
    assert reported in " ".join(result.stderr.split())


def test_a_value_of_several_lines_stays_in_the_comment_that_quotes_it():
    """The text behind the break would be YAML of its own."""
    kubelet = "      kubelet: {containerRuntime: containerd}\n"
    text = POOL.replace("{name: web}", '{name: "web\\nkind: Secret"}') + kubelet
    result = convert("-", text=text)

    (written_pool,) = yaml.safe_load_all(result.stdout)
    assert written_pool["kind"] == "NodePool"
    assert "# Converted from" in result.stdout


def test_a_requirement_without_a_key_gets_none():
    """Admission says what is missing; a label named None would be found much later."""
    text = POOL.replace("requirements: []", "requirements: [{operator: In, values: [spot]}]")

    assert "None" not in convert("-", text=text).stdout


def test_the_provisioner_of_another_cloud_is_named_and_not_converted():
    text = PROVISIONER.replace("{name: default}", "{name: default, kind: OtherTemplate}")
    result = convert("-", text=text)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "no installed provider converts OtherTemplate" in " ".join(result.stderr.split())
