"""Missing actions are found in what Azure says an identity may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.role_actions import missing_actions, needed_actions
from providers.azure.tests.arm.values import GROUP, SUBNET, settings_for

WRITE = "Microsoft.Compute/virtualMachines/write"
NEEDED = tuple(dict.fromkeys(a for it in needed_actions(settings_for()) for a in it.actions))


@pytest.mark.parametrize(
    ("permissions", "is_missing"),
    [
        ([], True),
        ([{"actions": ["*"], "notActions": []}], False),
        ([{"actions": ["*/read"]}], True),
        ([{"actions": ["Microsoft.Compute/virtualMachines/*"], "notActions": []}], False),
        ([{"actions": ["microsoft.compute/VIRTUALMACHINES/write"]}], False),
        ([{"actions": ["Microsoft.Compute/virtualMachines"]}], True),
        ([{"actions": ["*"], "notActions": ["Microsoft.Compute/*/write"]}], True),
        ([{"actions": ["*"], "notActions": ["*"]}, {"actions": [WRITE]}], False),
        ([{"actions": ["MicrosoftXCompute/virtualMachines/write"]}], True),
    ],
)
def test_a_role_grants_its_actions_without_those_it_leaves_out(permissions, is_missing):
    assert missing_actions([WRITE], permissions) == ((WRITE,) if is_missing else ())


@given(st.sets(st.sampled_from(NEEDED)), st.sets(st.sampled_from(NEEDED)))
def test_missing_actions_are_those_of_no_assignment(first, second):
    permissions = [{"actions": sorted(first)}, {"actions": sorted(second), "notActions": []}]

    missing = missing_actions(NEEDED, permissions)

    assert set(missing) == set(NEEDED) - first - second
    assert missing_actions(NEEDED, [{"actions": ["*"], "notActions": sorted(first)}]) == tuple(
        action for action in NEEDED if action in first
    )


def test_actions_are_needed_at_the_group_the_subnet_and_each_identity():
    scopes = {it.scope for it in needed_actions(settings_for(node_identities=("/id/1", "/id/2")))}

    assert {"/id/1", "/id/2", SUBNET} < scopes
    assert any(scope.endswith(f"/resourceGroups/{GROUP}") for scope in scopes)


def test_the_deletion_of_machines_is_needed_at_their_pool_if_they_are_managed():
    managed = settings_for(
        manage_existing_aks_machines=True,
        arm_resource_group="clusters",
        aks_machines_pool_name="pool",
    )
    (added,) = set(needed_actions(managed)) - set(needed_actions(settings_for()))

    assert added.scope.endswith(
        "/resourceGroups/clusters/providers/Microsoft.ContainerService"
        "/managedClusters/demo/agentPools/pool"
    )
    assert [action.rpartition("/agentPools/")[2] for action in added.actions] == [
        "deleteMachines/action"
    ]
