"""The roles permit what the provider calls, and nothing else; the guide's objects and settings are real."""

from __future__ import annotations

import ast
import json
import re
import shlex
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from karpenter_core.api.durations import format_duration
from karpenter_provider_azure.instance_tags import CLAIM_UID_TAG, instance_tags
from karpenter_provider_azure.labels import AKS_MACHINE_NODE_CLAIM_TAG, BILLING_TAG, CLUSTER_TAG
from karpenter_provider_azure.role_actions import missing_actions, needed_actions
from karpenter_provider_azure.setting_specs import SETTINGS
from providers.azure.tests.bootstrap.boots import settings

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "providers" / "azure" / "karpenter_provider_azure"
ROLES = {path.stem: path for path in (ROOT / "providers" / "azure" / "rbac").glob("*.json")}
GUIDE = ROOT / "docs" / "azure.md"
NAMES = {"AZURE_SUBSCRIPTION_ID": "s" * 36, "CLUSTER_NAME": "shop"}

NAMESPACES = {
    "agentPools/deleteMachines": "Microsoft.ContainerService/managedClusters",
    "agentPools/machines": "Microsoft.ContainerService/managedClusters",
    "communityGalleries/images/versions": "Microsoft.Compute/locations",
    "disks": "Microsoft.Compute",
    "loadBalancers": "Microsoft.Network",
    "networkInterfaces": "Microsoft.Network",
    "networkSecurityGroups": "Microsoft.Network",
    "nodeImageVersions": "Microsoft.ContainerService/locations",
    "skus": "Microsoft.Compute",
    "usages": "Microsoft.Compute/locations",
    "virtualMachines": "Microsoft.Compute",
    "virtualMachines/extensions": "Microsoft.Compute",
    "virtualNetworks": "Microsoft.Network",
    "virtualNetworks/subnets": "Microsoft.Network",
}
"""Place of each type of resource that calls name."""
VERBS = {
    "delete": "delete",
    "get": "read",
    "list": "read",
    "patch": "write",
    "post": "action",
    "put": "write",
}
ELSEWHERE = {
    "diskEncryptionSets:get": "Reader of the set, if one is configured",
    "imageTokens:get": "a service of AKS",
    "nodeBootstrapping:post": "a service of AKS",
    "operations:get": "operations of compute and network",
    "resources:query": "Resource Graph shows what other actions permit to read",
    "retailPrices:list": "public",
    "tokens:get": "Microsoft Entra",
}
"""Calls that need no action of their own in these roles."""
IMPLIED = {
    "Microsoft.Authorization/permissions/read": "the doctor",
    "Microsoft.Compute/disks/write": "OS disk of a virtual machine",
    "Microsoft.Compute/locations/operations/read": "operations:get",
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action": "identity of one",
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action": "interface of one",
    "Microsoft.Network/locations/operations/read": "operations:get",
    "Microsoft.Network/networkInterfaces/join/action": "interface of one",
    "Microsoft.Network/networkInterfaces/read": "interfaces that Resource Graph shows",
    "Microsoft.Network/networkInterfaces/write": "interface of one",
    "Microsoft.Network/networkSecurityGroups/join/action": "interface of one",
    "Microsoft.Network/virtualNetworks/subnets/join/action": "interface of one",
}
"""Actions that no call is named after, and what needs them."""


@cache
def called() -> frozenset[str]:
    """Return the names of all calls in the package: `virtualMachines:put`."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                is_name = re.fullmatch(r"[a-zA-Z]+(/[a-zA-Z]+)*:[a-z]+", node.value)
                found |= {node.value} if is_name else set()
    return frozenset(found)


def role(name: str) -> dict:
    text = ROLES[name].read_text()
    return json.loads(re.sub(r"\$\{(\w+)\}", lambda match: NAMES[match[1]], text))


def granted() -> set[str]:
    return {action for name in ROLES for action in role(name)["Actions"]}


def test_every_call_has_its_permissions():
    known = {f"{kind}:{verb}" for kind in NAMESPACES for verb in VERBS} | ELSEWHERE.keys()

    assert called() - known == set()
    assert "virtualMachines:put" in called(), "calls are found"


def test_roles_permit_exactly_the_called_actions():
    needed: set[str] = set()
    for call in called() - ELSEWHERE.keys():
        kind, _, verb = call.partition(":")
        needed.add(f"{NAMESPACES[kind]}/{kind}/{VERBS[verb]}")

    assert granted() == needed | IMPLIED.keys()


def test_roles_permit_the_actions_that_doctor_checks():
    permissions = [role(name) for name in ROLES]
    asked = [{"actions": each["Actions"], "notActions": each["NotActions"]} for each in permissions]
    all_settings = settings(manage_existing_aks_machines=True, arm_resource_group="group")
    needed = [action for each in needed_actions(all_settings) for action in each.actions]

    assert missing_actions(needed, asked) == ()


@pytest.mark.parametrize("name", sorted(ROLES))
def test_a_role_is_a_custom_one_for_the_subscription(name):
    definition = role(name)

    assert definition["IsCustom"] is True
    assert definition["Actions"] == sorted(set(definition["Actions"]))
    assert not any("*" in action for action in definition["Actions"])
    assert definition["AssignableScopes"] == [f"/subscriptions/{NAMES['AZURE_SUBSCRIPTION_ID']}"]
    assert definition["Name"].replace("shop", "$CLUSTER_NAME") in GUIDE.read_text()


def test_only_reading_is_permitted_beyond_the_resource_group():
    assert all(action.endswith("/read") for action in role("region")["Actions"])


# -- the guide -----------------------------------------------------------------------------------


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


def test_the_guide_names_the_tags():
    text = GUIDE.read_text()
    tags = instance_tags({}, additional_tags={}, cluster="c", claim_uid="u", node_pool="p")

    assert {CLUSTER_TAG, BILLING_TAG, AKS_MACHINE_NODE_CLAIM_TAG, CLAIM_UID_TAG} <= set(
        re.findall(r"`([^`\n]+)`", text)
    )
    assert all(f"`{tag}`" in text for tag in tags)


def test_every_command_of_the_guide_is_one_of_ours():
    from typer.main import get_command

    from karpenter_core.cli.main import build_app

    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    script = "\n".join(blocks).replace("\\\n", " ")
    words = [
        shlex.split(text.partition(" | ")[0])[1]
        for text in re.findall(r"(?m)^ *(?:kubectl exec .* -- )?(karpenter .*)$", script)
    ]

    assert set(words) == {"doctor"}
    assert set(words) <= get_command(build_app()).commands.keys()


def test_the_guide_names_the_variables_of_the_script():
    from karpenter_provider_azure.bootstrap.custom_data import script_variables
    from providers.azure.tests.bootstrap.boots import boot

    (row,) = (
        line
        for line in GUIDE.read_text().splitlines()
        if "names of the provisioning scripts" in line
    )

    assert set(re.findall(r"`([A-Z_]+)`", row)) <= script_variables(boot()).keys()
