"""The policies of the controller's role permit what the provider calls, and nothing else."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import botocore.session
import pytest
import yaml
from botocore import xform_name

from karpenter_core.api.crd import render_crd
from karpenter_core.api.schema import SchemaValidator
from karpenter_core.provider.contract import InterruptionKind
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.discovery.profile_names import profile_tags
from karpenter_provider_aws.instance_tags import owned_tags
from karpenter_provider_aws.interruption.messages import parse_message
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG, NAME_TAG, NODE_CLAIM_TAG
from karpenter_provider_aws.service_models import OPERATIONS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "providers" / "aws" / "karpenter_provider_aws"
POLICIES = sorted((ROOT / "providers" / "aws" / "iam").glob("*.json"))
GUIDE = ROOT / "docs" / "aws.md"
SERVICES = ("arc-zonal-shift", "ec2", "eks", "iam", "pricing", "sqs", "ssm", "sts")
NAMES = {
    "AWS_PARTITION": "aws-us-gov",
    "AWS_REGION": "us-gov-west-1",
    "AWS_ACCOUNT_ID": "123456789012",
    "CLUSTER_NAME": "c" * 60,
    "NODE_ROLE": "r" * 60,
}
LONGEST = 6144
"""Characters of a managed policy, white space apart; those inside of a role have 10,240 together."""

CALLED_OTHERWISE = {
    "sqs:DeleteMessageBatch": ("sqs:DeleteMessage",),
    "sts:GetCallerIdentity": (),  # needs no permission
    # Resources are tagged in the call that creates them, and instances are given their role.
    "ec2:CreateFleet": ("ec2:CreateFleet", "ec2:CreateTags", "iam:PassRole"),
    "ec2:RunInstances": ("ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"),
    "ec2:CreateLaunchTemplate": ("ec2:CreateLaunchTemplate", "ec2:CreateTags"),
    "iam:CreateInstanceProfile": ("iam:CreateInstanceProfile", "iam:TagInstanceProfile"),
    "iam:AddRoleToInstanceProfile": ("iam:AddRoleToInstanceProfile", "iam:PassRole"),
}


def operations():
    """Return the operations of AWS by the name of the client's method."""
    session = botocore.session.get_session()
    return {
        xform_name(operation): f"{service}:{operation}"
        for service in SERVICES
        for operation in session.get_service_model(service).operation_names
    }


def called():
    """Return the operations that modules of the package name: as a method, or of a paginator."""
    known, found = operations(), set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"get_paginator", "get_waiter"}
            ):
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}: not a name"
                found.add(node.args[0].value)
    return {known[name] for name in found if name in known}


def statements():
    return [
        statement
        for path in POLICIES
        for statement in json.loads(substituted(path.read_text()))["Statement"]
    ]


def substituted(text):
    return re.sub(r"\$\{(\w+)\}", lambda match: NAMES[match[1]], text)


def of(sid):
    (found,) = (each for each in statements() if each["Sid"] == sid)
    return found


def test_policies_permit_exactly_the_called_actions():
    needed = {action for call in called() for action in CALLED_OTHERWISE.get(call, (call,))}

    permitted = {action for statement in statements() for action in statement["Action"]}

    assert len(needed) > 30
    assert permitted == needed


def test_clients_have_the_operations_that_are_called_and_no_other():
    described = {f"{service}:{name}" for service, names in OPERATIONS.items() for name in names}

    assert described == {call for call in called() if call.partition(":")[0] in OPERATIONS}


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_each_policy_is_as_short_as_iam_takes(path):
    assert len(re.sub(r"\s", "", substituted(path.read_text()))) <= LONGEST


def test_existing_resources_may_be_changed_by_their_own_tags_alone():
    """An action on what exists already is bounded by the tags of that: others' must stay theirs."""
    changing = {"ec2:DeleteLaunchTemplate", "ec2:TerminateInstances", "iam:TagInstanceProfile"}
    changing |= {f"iam:{verb}InstanceProfile" for verb in ("AddRoleTo", "RemoveRoleFrom", "Delete")}

    unbounded = [
        (statement["Sid"], action)
        for statement in statements()
        for action in changing.intersection(statement["Action"])
        if not any(
            key.startswith("aws:ResourceTag/kubernetes.io/cluster/")
            for key in statement.get("Condition", {}).get("StringEquals", {})
        )
    ]

    assert unbounded == []


def test_nothing_is_permitted_by_wildcard_and_everything_is_bounded():
    """Only calls whose resource cannot be named apply to all, and no action to all others."""
    unbounded = {
        action
        for statement in statements()
        if statement["Resource"] == "*" and "Condition" not in statement
        for action in statement["Action"]
    }

    assert all("*" not in action for each in statements() for action in each["Action"])
    assert unbounded == {"iam:ListInstanceProfiles", "pricing:GetProducts"}


def test_statements_have_names_of_their_own():
    sids = [statement["Sid"] for statement in statements()]

    assert len(set(sids)) == len(sids)
    assert all(re.fullmatch(r"[A-Za-z0-9]+", sid) for sid in sids)


@pytest.mark.parametrize("sid", ["MakeWithTags", "TagWhatIsMade"])
def test_created_resources_have_the_tags_of_the_policies(sid):
    cluster = NAMES["CLUSTER_NAME"]
    tags = owned_tags({}, cluster=cluster, node_class="default", node_pool="default")

    assert unmet(of(sid), "aws:RequestTag/", tags) == []


@pytest.mark.parametrize("sid", ["LaunchByOwnTemplates", "TagOwnInstances", "EndOwn"])
def test_existing_resources_have_the_tags_of_the_policies(sid):
    cluster = NAMES["CLUSTER_NAME"]
    tags = owned_tags({}, cluster=cluster, node_class="default", node_pool="default")

    assert unmet(of(sid), "aws:ResourceTag/", tags) == []


@pytest.mark.parametrize(
    ("sid", "prefix"),
    [
        ("MakeProfiles", "aws:RequestTag/"),
        ("TagProfiles", "aws:RequestTag/"),
        ("TagProfiles", "aws:ResourceTag/"),
        ("ChangeOwnProfiles", "aws:ResourceTag/"),
    ],
)
def test_profiles_have_the_tags_of_the_policies(sid, prefix):
    tags = profile_tags(
        {}, cluster=NAMES["CLUSTER_NAME"], region=NAMES["AWS_REGION"], node_class="default"
    )

    assert unmet(of(sid), prefix, tags) == []


def unmet(statement, prefix, tags):
    """Return the conditions on tags that these tags do not meet."""
    conditions = [
        (key.removeprefix(prefix), wanted)
        for operator in ("StringEquals", "StringLike")
        for key, wanted in statement["Condition"].get(operator, {}).items()
        if key.startswith(prefix)
    ]
    assert conditions
    return [key for key, wanted in conditions if key not in tags or wanted not in {tags[key], "*"}]


def test_the_tags_that_may_be_added_later_are_those_that_are():
    allowed = of("TagOwnInstances")["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"]

    assert set(allowed) == {NAME_TAG, NODE_CLAIM_TAG, EKS_CLUSTER_NAME_TAG}


def test_the_guides_rules_let_through_messages_that_are_understood():
    """Each pattern, made into a message, announces something."""
    patterns = re.findall(r"^rule \w+ '(\{[^']*\})'$", GUIDE.read_text(), re.MULTILINE)
    assert len(patterns) == 5
    for text in patterns:
        pattern = json.loads(text)
        detail = {key: values[0] for key, values in pattern.get("detail", {}).items()}
        said = parse_message(
            json.dumps(
                {
                    "version": "0",
                    "source": pattern["source"][0],
                    "detail-type": pattern["detail-type"][0],
                    "detail": {
                        **detail,
                        "instance-id": "i-1",
                        "affectedEntities": [{"entityValue": "i-1"}],
                    },
                }
            )
        )
        assert said.kind not in {InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN}
        assert said.instance_ids == ("i-1",)


def test_the_guides_node_class_is_admitted():
    blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (document,) = (
        each
        for block in blocks
        for each in yaml.safe_load_all(block)
        if each["kind"] == "EC2NodeClass"
    )
    (version,) = render_crd(EC2NodeClass)["spec"]["versions"]
    validator = SchemaValidator(version["schema"]["openAPIV3Schema"])

    assert list(validator.validate(validator.default(document))) == []
    assert EC2NodeClass.model_validate(document).name == "default"


def test_the_guide_explains_every_variable_of_the_policies():
    names = {name for path in POLICIES for name in re.findall(r"\$\{(\w+)\}", path.read_text())}

    assert names == set(NAMES)
    for name in names:
        assert re.search(rf"\b{name}=", GUIDE.read_text())


def commands(program):
    """Return what the guide calls a program with, by words; a loop's variables stay as they are."""
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    script = "\n".join(blocks).replace("\\\n", " ")
    inside = re.findall(rf"\$\(({program} [^()]*)\)", script)
    found = [*inside, *re.findall(rf"(?m)^ *({program} (?:[^'\n]|'[^']*')*)$", script)]
    return [shlex.split(text.partition(" | ")[0], comments=True)[1:] for text in found]


def test_every_command_of_the_guide_is_one_of_the_aws_cli():
    """By the descriptions that the CLI makes its commands and options from."""
    session = botocore.session.get_session()
    found = set()
    for service, command, *words in commands("aws"):
        model = session.get_service_model(service)
        named = {xform_name(name, "-"): name for name in model.operation_names}
        shape = model.operation_model(named[command]).input_shape
        options = {word.removeprefix("--") for word in words if word.startswith("--")}
        members = {} if shape is None else shape.members
        known = {xform_name(name, "-"): name for name in members}
        assert options - {"query", "output"} <= known.keys(), command
        needed = {
            xform_name(name, "-") for name in ([] if shape is None else shape.required_members)
        }
        assert needed <= options, command
        found.add(f"{service} {command}")
    assert len(found) > 10


def test_every_command_of_the_guide_is_one_of_ours():
    from typer.main import get_command

    from karpenter_core.cli.main import build_app
    from karpenter_core.operator.options import OPTIONS, flag_name
    from karpenter_provider_aws.settings import SETTINGS

    program = get_command(build_app())
    called = commands("karpenter")
    assert {words[0] for words in called} == {"doctor"}
    flags = {option.flag for option in OPTIONS} | {flag_name(spec) for spec in SETTINGS}
    for name, *words in called:
        own = {option.lstrip("-") for each in program.commands[name].params for option in each.opts}
        given = {word.removeprefix("--") for word in words if word.startswith("--")}
        assert given <= own | flags


def test_the_guides_queue_takes_messages_of_its_rules():
    """The attributes are JSON in JSON, written by the shell."""
    text = re.search(r"<<EOF\n(.*?)\nEOF", GUIDE.read_text(), re.DOTALL)[1]
    attributes = json.loads(text.replace("$queue", "arn:aws:sqs:eu-west-1:123456789012:demo"))

    policy = json.loads(attributes.pop("Policy"))

    assert attributes == {"MessageRetentionPeriod": "300", "SqsManagedSseEnabled": "true"}
    allowed, denied = policy["Statement"]
    assert allowed["Principal"] == {"Service": "events.amazonaws.com"}
    assert (allowed["Effect"], denied["Effect"]) == ("Allow", "Deny")
