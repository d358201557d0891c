"""Tests the deletion of unused instance profiles (case 142)."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError


def collect(parts):
    """Let the periodic task run, as the provider does."""
    return parts.profiles.collect(parts.resolver.profiles_in_use(), complete=True)


def run_instance(parts, clients, node_class):
    image_id = next(
        ami.id for ami in node_class.status.amis if ami.requirements[0].values == ("amd64",)
    )
    return clients.ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        ImageId=image_id,
        InstanceType="m5.large",
        SubnetId=node_class.status.subnets[0].id,
        IamInstanceProfile={"Name": node_class.status.instance_profile},
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [
                    {"Key": f"kubernetes.io/cluster/{parts.aws.world.cluster}", "Value": "owned"}
                ],
            }
        ],
    )["Instances"][0]["InstanceId"]


@pytest.fixture
def two_roles(parts, clients):
    """A NodeClass before and after its role was changed, an hour ago."""
    clients.iam.create_role(RoleName="second", AssumeRolePolicyDocument="{}")
    first = parts.resolve(parts.node_class(ami_selector_terms=[{"alias": "bottlerocket@latest"}]))
    changed = first.model_copy(
        update={
            "metadata": first.metadata.model_copy(update={"generation": 2}),
            "spec": first.spec.model_copy(update={"role": "second"}),
        }
    )
    return first, parts.resolve(changed)


def test_a_profile_is_kept_until_its_instances_are_gone(parts, aws, clients, two_roles):
    """Without it they have no credentials; what the NodeClass has now stays in any case."""
    before, after = two_roles
    old, new = before.status.instance_profile, after.status.instance_profile
    instance_id = run_instance(parts, clients, before)
    parts.clock.forward(hours=1)
    parts.resolve(after)

    for _ in range(3):
        assert collect(parts) == ()
        parts.clock.forward(minutes=30)
    aws.terminate(instance_id)
    assert collect(parts) == ()
    parts.clock.forward(minutes=30)
    assert collect(parts) == (old,)
    assert aws.held().instance_profiles == [new]


@pytest.mark.parametrize("action", ["ec2:DescribeInstances", "iam:ListInstanceProfiles"])
def test_no_profile_is_removed_while_users_cannot_be_listed(parts, aws, two_roles, action):
    """Also after profiles seemed unused."""
    before, after = two_roles
    parts.clock.forward(hours=1)
    parts.resolve(after)
    assert collect(parts) == ()
    parts.clock.forward(minutes=30)
    with aws.deny(action), pytest.raises(CloudProviderError):
        collect(parts)
    assert before.status.instance_profile in aws.held().instance_profiles
