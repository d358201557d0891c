"""Tests mistakes of users and operators on AWS, end to end.

A whole process of the controller runs against an embedded API server in simulated time, with the real
boto3 against the simulated AWS. Whatever is wrong is a condition of the EC2NodeClass that names field
and cause, and a finding of `karpenter doctor`; nothing is launched, the process lives on, calls stay few,
and once it is mended nodes come by themselves.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.testing.provider_cluster import ProviderClusterSpec, node_pool_manifest
from karpenter_core.testing.user_mistakes import UserMistake
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.testing import (
    attempts,
    few_types,
    node_class_for,
    simulated_environment,
)
from tests.support.user_mistake_runs import as_cluster_runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_aws.cloud import SimulatedAws

BOTTLEROCKET = [{"alias": "bottlerocket@latest"}]
ARGUMENTS = ("--cluster-name=test", "--eks-control-plane")
LIMITS = ClientLimits(connect_seconds=1, read_seconds=5, retries=attempts(2))
MINUTES = 20
"""Duration of each fault."""
CALLS_A_MINUTE = 16
"""A dozen things are looked at, each once a minute or more seldom."""
CALLS_AT_FIRST = 80
"""A failed call is retried soon at first, and later with longer waits."""


def wrong_credentials(aws: SimulatedAws) -> AbstractContextManager[object]:
    """Have them refused; each service words it in its own way."""
    troubles = ExitStack()
    troubles.enter_context(aws.fail("ec2:*", code="AuthFailure", status=401, times=None))
    for service in ("iam", "sts"):
        troubles.enter_context(
            aws.fail(f"{service}:*", code="InvalidClientTokenId", status=403, times=None)
        )
    for service in ("ssm", "eks", "pricing", "sqs"):
        troubles.enter_context(
            aws.fail(f"{service}:*", code="UnrecognizedClientException", times=None)
        )
    return troubles


@contextmanager
def no_credentials(_: SimulatedAws) -> Iterator[None]:
    """Have none in any place that the SDK reads."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            patch.setenv(name, "/dev/null")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@contextmanager
def deleted_group(aws: SimulatedAws) -> Iterator[None]:
    """Delete the nodes' only security group; make it anew afterwards."""
    ec2 = owners_clients(aws).ec2
    ec2.delete_security_group(GroupId=aws.world.security_group_id)
    yield
    tags = [{"Key": key, "Value": value} for key, value in aws.world.discovery.items()]
    ec2.create_security_group(
        GroupName="anew",
        Description="nodes",
        VpcId=aws.world.vpc_id,
        TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
    )


@cache
def owners_clients(aws: SimulatedAws) -> CloudClients:
    return CloudClients(region=aws.account.region, every_operation=True)


WRONG: tuple[UserMistake[SimulatedAws], ...] = (
    UserMistake(
        name="wrong credentials",
        condition="SubnetsReady",
        reason="Unauthorized",
        must_name=("spec.subnetSelectorTerms", "ec2:DescribeSubnets", "AuthFailure"),
        trouble=wrong_credentials,
        cloud_check_names="sts:GetCallerIdentity",
    ),
    UserMistake(
        name="no credentials",
        condition="SubnetsReady",
        reason="Unauthorized",
        must_name=("spec.subnetSelectorTerms", "ec2:DescribeSubnets", "credentials"),
        trouble=no_credentials,
        cloud_check_names="sts:GetCallerIdentity",
    ),
    UserMistake(
        name="missing permission to look",
        condition="SecurityGroupsReady",
        reason="Unauthorized",
        must_name=(
            "spec.securityGroupSelectorTerms",
            "ec2:DescribeSecurityGroups",
            "not authorized",
        ),
        trouble=lambda aws: aws.deny("ec2:DescribeSecurityGroups"),
        cloud_check_names="ec2:DescribeSecurityGroups",
    ),
    UserMistake(
        name="missing permission to launch",
        condition="ValidationSucceeded",
        reason="CreateFleetAuthCheckFailed",
        must_name=("ec2:CreateFleet", "no identity-based policy"),
        trouble=lambda aws: aws.deny("ec2:CreateFleet"),
    ),
    UserMistake(
        name="empty subnet selection",
        condition="SubnetsReady",
        reason="SubnetsNotFound",
        must_name=("spec.subnetSelectorTerms[0].tags {team: nobody}",),
        spec={"subnetSelectorTerms": [{"tags": {"team": "nobody"}}]},
    ),
    UserMistake(
        name="deleted security group",
        condition="SecurityGroupsReady",
        reason="SecurityGroupsNotFound",
        must_name=("spec.securityGroupSelectorTerms[0].tags {karpenter.sh/discovery: test}",),
        trouble=deleted_group,
    ),
    UserMistake(
        name="unknown image alias",
        condition="AMIsReady",
        reason="AMINotFound",
        must_name=('spec.amiSelectorTerms[0].alias "al2023@v19990101"', "1.34"),
        spec={"amiSelectorTerms": [{"alias": "al2023@v19990101"}]},
    ),
    UserMistake(
        name="invalid user data",
        condition="ValidationSucceeded",
        reason="InvalidUserData",
        must_name=("spec.userData", "TOML"),
        spec={"amiSelectorTerms": BOTTLEROCKET, "userData": "[settings"},
    ),
)


@pytest.fixture(scope="module")
def cloud() -> Iterator[SimulatedAws]:
    """One cloud that sells little, as each process reads its catalogue."""
    with few_types() as aws, simulated_environment(aws):
        yield aws
        owners_clients.cache_clear()


@pytest.fixture
def few(cloud: SimulatedAws) -> SimulatedAws:
    """The cloud as it was in the beginning."""
    cloud.reset()
    return cloud


PLAY = ProviderClusterSpec(
    plugins=lambda: {"aws": AwsProvider(limits=LIMITS)}, model=EC2NodeClass, arguments=ARGUMENTS
)


def manifest(aws: SimulatedAws, *, tried: str = "once", **spec: Any) -> dict[str, Any]:
    """Return an EC2NodeClass; what was tried out is tried anew when an annotation changes."""
    written = node_class_for(aws, **spec).model_dump(mode="json", exclude_unset=True)
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default", "annotations": {"example.com/tried": tried}},
        "spec": written["spec"],
    }


NODE_POOL = node_pool_manifest(EC2NodeClass, requirements={"karpenter.sh/capacity-type": ["spot"]})
CONTAINER = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "1"}}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"containers": [CONTAINER]},
}


@pytest.mark.parametrize(
    "case", as_cluster_runs(WRONG, but=("wrong credentials", "missing permission to launch"))
)
def test_a_mistake_is_reported_and_nodes_launch_once_it_is_corrected(few, tmp_path, case):
    """Conditions, findings, and the number of calls over twenty minutes of simulated time."""

    async def scenario(stage: ProviderCluster) -> None:
        with case.applied_to(few):
            few.calls.clear()
            stage.apply(manifest(few, **case.spec), NODE_POOL, POD)
            await stage.until_ready("False")
            await stage.advance_minutes(MINUTES)
            calls = len(few.calls.all)
            user_messages = await stage.user_messages()

        assert stage.running.is_alive
        assert not few.instances.all
        assert case.missing_messages(user_messages) == []
        assert calls <= CALLS_A_MINUTE * MINUTES + CALLS_AT_FIRST

        stage.apply(manifest(few, tried="again"))
        await stage.harness.settle(lambda: len(few.instances.all) == 1, seconds=400)
        assert stage.is_ready("True")
        assert await stage.doctor_object_errors() == ""

    PLAY.run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("trouble", "condition"),
    [
        (wrong_credentials, "SubnetsReady"),
        (lambda aws: aws.deny("ec2:Describe*"), "SubnetsReady"),
        (deleted_group, "SecurityGroupsReady"),
    ],
    ids=["credentials", "permissions", "group"],
)
def test_a_later_fault_costs_no_instance(few, tmp_path, trouble, condition):
    """A running instance goes on in any state of the NodeClass."""

    async def scenario(stage: ProviderCluster) -> None:
        stage.apply(manifest(few), NODE_POOL, POD)
        await stage.harness.settle(lambda: len(few.instances.all) == 1)
        claims = {claim["metadata"]["uid"] for claim in stage.harness.claims()}
        with trouble(few):
            await stage.until_ready("False", seconds=1000)
            # Longer would end the claim: nothing here makes a Node of the instance.
            await stage.advance_minutes(3)
            assert stage.conditions()[condition]["status"] == "False"
            assert stage.running.is_alive
            assert {claim["metadata"]["uid"] for claim in stage.harness.claims()} == claims
            assert few.calls.count("TerminateInstances") == 0
            assert len(few.held().instances) == 1
        await stage.until_ready("True", seconds=1000)

    PLAY.run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("UnauthorizedOperation", "You are not authorized.", "Unauthorized"),
        ("AuthFailure", "Not authorized for images: [ami-0abc]", "AMIAuthorizationFailure"),
    ],
)
def test_a_launch_that_is_not_permitted_says_so_in_the_launched_condition(
    few, tmp_path, code, message, reason
):
    """The permission is taken away once the NodeClass has been tried out."""

    def launched(stage: ProviderCluster) -> list[dict[str, Any]]:
        conditions = [c.get("status", {}).get("conditions", ()) for c in stage.harness.claims()]
        return [c for each in conditions for c in each if c["type"] == "Launched"]

    async def scenario(stage: ProviderCluster) -> None:
        stage.apply(manifest(few), NODE_POOL)
        await stage.until_ready("True")
        with few.fail("CreateFleet", code=code, message=message, status=403, times=None):
            stage.apply(POD)
            await stage.harness.settle(
                lambda: any(c.get("reason") == reason for c in launched(stage)), seconds=60
            )
            (condition,) = launched(stage)
            assert (condition["status"], condition["reason"]) == ("Unknown", reason)
            assert message in condition["message"]

    PLAY.run(tmp_path, scenario)
