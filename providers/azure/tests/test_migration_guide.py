"""Tests the guide's chapter on moving over from Karpenter's provider for Azure."""

from __future__ import annotations

import re
from pathlib import Path

from karpenter_core.controllers.nodeclass.controller import termination_finalizer
from karpenter_core.operator.options import OPTIONS
from karpenter_provider_azure import labels
from karpenter_provider_azure.api.nodeclass import AKSNodeClass, AKSNodeClassSpec
from karpenter_provider_azure.hashing import HASH_VERSION
from karpenter_provider_azure.machines.machine_reader import (
    MACHINE_API_VERSION,
    MACHINE_DELETION_API_VERSION,
)
from karpenter_provider_azure.resource_ids import vm_name
from karpenter_provider_azure.setting_specs import MACHINE_MODES, VM_MODES

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "azure.md").read_text()
MIGRATION = GUIDE.split("## Migration", 1)[1].split("## Uninstall", 1)[0]


def table(heading: str) -> dict[str, str]:
    """Return the second cell of each row of the table with this heading, by the first."""
    rows = MIGRATION.split(f"{heading}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {first: second for first, second, *_ in cells}


def test_equal_names_are_listed_as_equal():
    said = table("| what | names |")
    resource = AKSNodeClass.resource

    assert f"`{resource.kind}` of `{resource.group}/{resource.version}`" in said["kinds"]
    assert set(re.findall("`([^`]+)`", said["labels of nodes"])) == {
        labels.SKU_NAME,
        labels.NODE_CLASS,
        labels.AKS_CLUSTER,
    }
    assert set(re.findall("`([^`]+)`", said["tags of virtual machines"])) == {
        labels.CLUSTER_TAG,
        labels.NODE_POOL_TAG,
        labels.BILLING_TAG,
    }
    assert f"`{vm_name('<NodeClaim>')}`" in said["other"]
    assert f"`{termination_finalizer(AKSNodeClass())}`" in said["other"]
    assert termination_finalizer(AKSNodeClass()) == labels.TERMINATION_FINALIZER
    lease = next(it for it in OPTIONS if it.flag == "leader-election-name")
    assert f"`{lease.default}`" in said["other"]


def test_the_guide_lists_the_modes_that_support_a_take_over():
    always, _, with_the_option = MIGRATION.partition("### AKS machines")

    assert all(f"`{mode}`" in always for mode in VM_MODES)
    assert all(f"`{mode}`" in with_the_option for mode in MACHINE_MODES)
    assert f"`{labels.AKS_MACHINE_NODE_CLAIM_TAG}`" in with_the_option
    for setting in ("MANAGE_EXISTING_AKS_MACHINES=true", "AKS_MACHINES_POOL_NAME"):
        assert f"`{setting}`" in with_the_option
    for version in (MACHINE_API_VERSION, MACHINE_DELETION_API_VERSION):
        assert f"`{version}`" in with_the_option


def test_the_version_of_hashes_is_the_one_in_use():
    assert (
        f"`{HASH_VERSION}`"
        in table("| subject | this provider | Karpenter's provider for Azure |")["running nodes"]
    )


def test_fields_in_the_guide_are_fields():
    (rows,) = re.findall(r"\| topic \| fields \|\n\|---\|---\|\n(.*?)\n\n", GUIDE, re.DOTALL)
    known = {field.alias or name for name, field in AKSNodeClassSpec.model_fields.items()}
    named = {
        word.split(".")[0].split(":")[0]
        for word in re.findall(r"`([a-z][A-Za-z.]+(?:: \w+)?)`", rows)
    }

    assert named - known - {"zonal"} == set()
    assert len(named) > 10
