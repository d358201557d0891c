"""The end of a NodeClass over the simulated AWS (acceptance case 141)."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError


def test_nothing_is_left_of_a_node_class(parts, aws):
    """Profiles and launch templates; another NodeClass's stay, and it may be repeated (PC-012)."""
    node_class = parts.resolve(parts.node_class())
    other = parts.node_class(uid="uid-2")
    renamed = other.metadata.model_copy(update={"name": "other"})
    stays = parts.resolve(other.model_copy(update={"metadata": renamed}))
    assert len(aws.held().launch_templates) == 2

    for _ in range(2):
        parts.finalizer.finalize(node_class)

    held = aws.held()
    assert held.instance_profiles == [stays.status.instance_profile]
    assert len(held.launch_templates) == 1
    assert parts.resolver.profiles_in_use() == {stays.status.instance_profile}


def test_another_process_can_finish_the_finalization(make_parts, aws):
    """Nothing needs to be remembered."""
    node_class = make_parts().resolve(make_parts().node_class())

    make_parts().finalizer.finalize(node_class)

    assert not aws.held().all


@pytest.mark.parametrize("action", ["iam:ListInstanceProfiles", "DeleteLaunchTemplate"])
def test_a_failed_removal_is_repeated(parts, aws, action):
    """The other half is removed already."""
    node_class = parts.resolve(parts.node_class())
    with aws.deny(action), pytest.raises(CloudProviderError):
        parts.finalizer.finalize(node_class)
    held = aws.held()
    assert bool(held.instance_profiles) != bool(held.launch_templates)

    parts.finalizer.finalize(node_class)
    assert not aws.held().all


def test_without_iam_access_profiles_are_kept(make_parts, aws):
    """An isolated network."""
    parts = make_parts(isolated_vpc=True)
    node_class = parts.resolve(parts.node_class())

    parts.finalizer.finalize(node_class)

    assert aws.held().instance_profiles == [node_class.status.instance_profile]
    assert not aws.held().launch_templates


def test_a_recreated_node_class_gets_new_trial_launches(parts, aws):
    """Results of trial launches are forgotten."""
    node_class = parts.resolve(parts.node_class())
    parts.finalizer.finalize(node_class)
    aws.calls.clear()

    parts.resolve(node_class)

    assert aws.calls.count("CreateFleet") == 1
