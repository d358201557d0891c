"""The policies permit what the provider calls, and nothing else; the guide's commands and objects are real.

Acceptance case 99, the last half: no secret is needed, and the guide mounts none.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from karpenter_core.api.crd import render_crd
from karpenter_core.api.durations import format_duration
from karpenter_core.api.schema import SchemaValidator
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.instance_tags import owned_tags
from karpenter_provider_alibabacloud.settings import SETTINGS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "providers" / "alibabacloud" / "karpenter_provider_alibabacloud"
POLICIES = {
    path.stem: path for path in (ROOT / "providers" / "alibabacloud" / "ram").glob("*.json")
}
GUIDE = ROOT / "docs" / "alibabacloud.md"
LONGEST = 6144
"""Characters of a custom policy of RAM."""
NAMES = {
    "ACCOUNT_ID": "1" * 16,
    "CLUSTER_ID": "c" * 33,
    "NODE_ROLE": "r" * 64,
    "REGION_ID": "cn-zhangjiakou",
}
SERVICES = {
    "ecs": "alibabacloud_ecs20140526",
    "vpc": "alibabacloud_vpc20160428",
    "ack": "alibabacloud_cs20151215",
}
PREFIXES = {"ecs": "ecs", "vpc": "vpc", "ack": "cs"}


def actions(service):
    """Return the names of a service's actions: its SDK has a response for each."""
    models = import_module(f"{SERVICES[service]}.models")
    return {name.removesuffix("Response") for name in dir(models) if name.endswith("Response")}


def called():
    """Return what modules of the package call: ECS, unless VPC or ACK is named at the call."""
    known = {service: actions(service) for service in SERVICES}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        elsewhere = set()
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Attribute)
                and node.func.value.attr in {"vpc", "ack"}
                and isinstance(node.args[0], ast.Constant)
            ):
                service, action = node.func.value.attr, node.args[0].value
                assert action in known[service]
                found.add(f"{PREFIXES[service]}:{action}")
                elsewhere.add(id(node.args[0]))
        found |= {
            f"ecs:{node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and id(node) not in elsewhere
            and isinstance(node.value, str)
            and node.value in known["ecs"]
        }
    return found


def substituted(text):
    return re.sub(r"\$\{(\w+)\}", lambda match: NAMES[match[1]], text)


def statements(name="controller"):
    return json.loads(substituted(POLICIES[name].read_text()))["Statement"]


def of(action, name="controller"):
    (found,) = (each for each in statements(name) if action in each["Action"])
    return found


def test_the_policy_permits_exactly_the_called_actions():
    permitted = [action for each in statements() for action in each["Action"]]

    assert len(permitted) > 15
    assert sorted(permitted) == sorted(called())


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_each_policy_fits_the_size_limit_of_ram_and_has_known_keys(name):
    text = substituted(POLICIES[name].read_text())

    assert len(re.sub(r"\s", "", text)) <= LONGEST
    assert json.loads(text)["Version"] == "1"
    for each in statements(name):
        assert each.keys() <= {"Effect", "Action", "Resource", "Condition"}
        assert all(re.fullmatch(r"[a-z]+:[A-Za-z]+", action) for action in each["Action"])


def test_only_reads_and_launches_apply_to_everything():
    unbounded = {a for each in statements() if each["Resource"] == "*" for a in each["Action"]}

    writes = {action for action in unbounded if ":Describe" not in action}
    assert writes == {"ecs:CreateAutoProvisioningGroup", "ecs:RunInstances"}
    assert of("cs:DescribeClusterDetail")["Resource"].endswith(NAMES["CLUSTER_ID"])


def test_launched_resources_have_the_tag_of_the_policy_condition():
    tags = owned_tags({}, cluster_id=NAMES["CLUSTER_ID"], node_class="default", node_pool="default")

    for action in ("ecs:DeleteInstances", "ecs:TagResources"):
        ((key, value),) = of(action)["Condition"]["StringEquals"].items()
        assert tags[key.removeprefix("acs:ResourceTag/")] == value


def test_the_role_of_nodes_is_passed_on_to_ecs_alone():
    statement = of("ram:PassRole", "node-role")

    assert statement["Resource"].endswith(f"role/{NAMES['NODE_ROLE']}")
    assert statement["Condition"] == {"StringEquals": {"acs:Service": "ecs.aliyuncs.com"}}


# -- the guide -----------------------------------------------------------------------------------


def test_the_guide_explains_every_variable_of_the_policies():
    text = GUIDE.read_text()
    names = {
        name for path in POLICIES.values() for name in re.findall(r"\$\{(\w+)\}", path.read_text())
    }

    assert names == set(NAMES)
    assert all(re.search(rf"\b{name}\b", text) for name in names)
    assert all(path.name in text for path in POLICIES.values())


def test_the_guides_trust_is_json_that_names_the_service_account():
    policy = re.search(r"--AssumeRolePolicyDocument '(\{.*?\n\})'\n", GUIDE.read_text(), re.DOTALL)[
        1
    ]

    (statement,) = json.loads(policy.replace("'", ""))["Statement"]

    assert statement["Action"] == "sts:AssumeRole"
    assert statement["Condition"]["StringEquals"]["oidc:aud"] == ["sts.aliyuncs.com"]
    assert statement["Condition"]["StringEquals"]["oidc:sub"] == [
        "system:serviceaccount:kube-system:karpenter"
    ]


def test_the_guides_node_class_is_admitted():
    blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (document,) = (
        each
        for block in blocks
        for each in yaml.safe_load_all(block)
        if each["kind"] == "ECSNodeClass"
    )
    (version,) = render_crd(ECSNodeClass)["spec"]["versions"]
    validator = SchemaValidator(version["schema"]["openAPIV3Schema"])

    assert list(validator.validate(validator.default(document))) == []
    assert ECSNodeClass.model_validate(document).name == "default"


def test_the_guide_lists_every_setting():
    def text(value):
        match value:
            case bool():
                return str(value).lower()
            case timedelta():
                return format_duration(value)
            case float():
                return f"{value:g}"
        return str(value)

    rows = [
        f"| `{each.flag}` | `{each.env}` | {f'`{text(each.default)}`' if text(each.default) else ''}"
        f" | {each.help} |"
        for each in SETTINGS
    ]

    assert "\n".join(rows) in GUIDE.read_text()


def commands(program):
    """Return what the guide calls a program with, by words."""
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    script = "\n".join(blocks).replace("\\\n", " ")
    found = re.findall(rf"(?m)^ *({program} (?:[^'\n]|'[^']*')*)$", script)
    return [shlex.split(text.partition(" | ")[0], comments=True)[1:] for text in found]


def test_the_guides_tags_are_set_by_calls_that_there_are():
    checked = 0
    for service, action, *words in commands("aliyun"):
        if service not in SERVICES:
            continue
        model = getattr(import_module(f"{SERVICES[service]}.models"), f"{action}Request")
        known = set(_wire_names(model))
        given = {word.removeprefix("--").split(".")[0] for word in words if word.startswith("--")}
        assert given <= known, action
        checked += 1
    assert checked == 2


def _wire_names(model):
    source = import_module(model.__module__).__file__
    return re.findall(r"result\['(\w+)'\]", Path(source).read_text())


def test_every_command_of_the_guide_is_one_of_ours():
    from typer.main import get_command

    from karpenter_core.cli.main import build_app
    from karpenter_core.operator.options import OPTIONS, flag_name

    program = get_command(build_app())
    called_with = commands("karpenter")
    assert {words[0] for words in called_with} == {"doctor"}
    flags = {option.flag for option in OPTIONS} | {flag_name(spec) for spec in SETTINGS}
    for name, *words in called_with:
        own = {option.lstrip("-") for each in program.commands[name].params for option in each.opts}
        given = {word.removeprefix("--") for word in words if word.startswith("--")}
        assert given <= own | flags
