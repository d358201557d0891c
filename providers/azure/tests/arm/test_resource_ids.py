"""Tests ids of resources and names of virtual machines."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.resource_ids import (
    ResourceId,
    claim_name,
    parse_provider_id,
    provider_id,
    same_id,
    vm_id,
    vm_name,
)

from .values import SUBNET

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


@given(names, names, names, st.lists(st.tuples(names, names), min_size=1, max_size=3))
def test_an_id_is_read_as_it_is_written(subscription, group, namespace, levels):
    types, level_names = zip(*levels, strict=True)
    text = str(
        ResourceId(
            subscription=subscription,
            resource_group=group,
            namespace=namespace,
            types=types,
            names=level_names,
        )
    )
    assert str(ResourceId.parse(text)) == text


def test_the_case_of_keys_and_types_does_not_count():
    parsed = ResourceId.parse(SUBNET.replace("resourceGroups", "resourcegroups").lower())
    assert parsed.is_type("Microsoft.Network/virtualNetworks/subnets")
    assert parsed.parent().is_type("Microsoft.Network/virtualNetworks")
    assert same_id(SUBNET, SUBNET.upper())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "subscriptions/s/resourceGroups/g/providers/N/t/n",
        "/subscriptions/s/resourceGroups/g",
        "/subscriptions/s/resourceGroups/g/providers/N/t",
        "/subscriptions/s/resourceGroups/g/providers/N/t/n/u",
        "/subscriptions/s/resourceGroups//providers/N/t/n",
        "/subscriptions/s/resourceGroups/g/things/N/t/n",
        "/groups/s/resourceGroups/g/providers/N/t/n",
    ],
)
def test_other_texts_are_no_ids(text):
    with pytest.raises(ValueError, match="is no resource id"):
        ResourceId.parse(text)


def test_a_top_resource_has_no_parent():
    with pytest.raises(ValueError, match="no parent"):
        ResourceId.parse(vm_id("s", "g", "n")).parent()


def test_a_provider_id_has_the_resource_group_in_lower_case():
    """# case 90"""
    expected = (
        "azure:///subscriptions/S/resourceGroups/mc_foo/providers/Microsoft.Compute"
        "/virtualMachines/aks-Web"
    )
    assert provider_id(vm_id("S", "MC_Foo", "aks-Web")) == expected
    assert parse_provider_id(expected).name == "aks-Web"


@pytest.mark.parametrize("text", ["aws:///x", f"azure://{SUBNET}", "azure://", "azure:///x"])
def test_provider_ids_of_other_things_are_refused(text):
    with pytest.raises(ValueError, match="is no"):
        parse_provider_id(text)


@given(st.lists(st.sampled_from(["a", "7", "a-b", "x.y", "z" * 20]), min_size=1, max_size=60))
def test_the_name_of_a_virtual_machine_is_a_valid_node_name(parts):
    claim = "".join(parts)
    name = vm_name(claim)
    assert len(name) <= 63
    assert re.fullmatch(r"aks-[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert name == vm_name(claim)
    assert (claim_name(name) == claim) is (len(claim) <= 59 and "." not in claim)


def test_claims_with_a_long_common_beginning_have_names_of_their_own():
    pool = "a" * 63
    assert len({vm_name(f"{pool}-{number}") for number in range(1000)}) == 1000


def test_names_of_claims_and_virtual_machines():
    assert vm_name("default-x7k2p") == "aks-default-x7k2p"  # case 74
    assert claim_name("aks-default-x7k2p") == "default-x7k2p"
    assert claim_name("jump-host") == ""


def test_the_name_of_a_virtual_machine_has_no_dots():
    """Its host would be named by what is before the first one, and its node not like it."""
    assert vm_name("team.a-x7k2p") == "aks-team-a-x7k2p"
    assert "." not in vm_name(f"{'team.a.' * 12}x7k2p")
