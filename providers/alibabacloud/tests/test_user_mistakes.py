"""Tests mistakes of users and operators on Alibaba Cloud, end to end.

A whole process of the controller runs against an embedded API server in simulated time, with the real
SDKs against the simulated cloud. Whatever is wrong is a condition of the ECSNodeClass that names field
and cause, and a finding of `karpenter doctor`; nothing is launched for it, others are served, calls stay
few, and once it is mended nodes come by themselves (acceptance cases 17, 19, 22 and 23).
"""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_core.testing.user_mistakes import UserMistake
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.labels import NODE_CLASS_TAG
from karpenter_simulated_alibabacloud.clusters import Cluster
from karpenter_simulated_alibabacloud.signatures import SignatureMode
from karpenter_simulated_alibabacloud.types import realistic_types
from providers.alibabacloud.tests.stages import CloudStage
from tests.support.cloud_scenarios import in_pool, pod_manifest
from tests.support.user_mistake_runs import as_cluster_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

GROUP = "CreateAutoProvisioningGroup"
STRANGER = "c0000000000000000000000000000000"
"""The id of a cluster that there is not."""
MINUTES = 12
"""Duration of each fault."""
CALLS_A_MINUTE = 16
"""A dozen things are looked at, each once a minute or more seldom."""
CALLS_AT_FIRST = 80
"""A failed call is retried soon at first, and later with longer waits."""
LAUNCHES_A_MINUTE = 3
"""Of two NodeClasses: a claim is tried again soon, until its NodeClass is known to be refused."""
LONGEST_RECOVERY_SECONDS = 400
"""A refused launch is retried after five minutes, other calls each minute."""


@contextmanager
def key_of(cloud: SimulatedAlibabaCloud, **variables: str) -> Iterator[None]:
    """Give the process a key that the account does not know, until it does."""
    cloud.signatures.check_kind = SignatureMode.STRICT
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(f"ALIBABA_CLOUD_ACCESS_KEY_{name}", value)
        yield
    cloud.signatures.check_kind = SignatureMode.OFF


@contextmanager
def no_credentials(_: SimulatedAlibabaCloud) -> Iterator[None]:
    """Have none in any place that the SDK reads; it read the environment when imported."""
    from alibabacloud_credentials.utils import auth_util

    with pytest.MonkeyPatch.context() as patch:
        for name in ("id", "secret"):
            patch.delenv(f"ALIBABA_CLOUD_ACCESS_KEY_{name.upper()}")
            patch.setattr(auth_util, f"environment_access_key_{name}", None)
        patch.setattr(auth_util, "environment_cli_profile_disabled", "true")
        patch.setattr(auth_util, "environment_credentials_file", "/dev/null")
        patch.setattr(auth_util, "environment_ecs_metadata_disabled", "true")
        yield


@contextmanager
def vswitch_of_another_vpc(cloud: SimulatedAlibabaCloud) -> Iterator[None]:
    """Put the cluster's tag on a foreign vSwitch."""
    vpc = cloud.networks.add_vpc(cidr="172.16.0.0/12")
    made = cloud.networks.add_vswitch(
        vpc.id, zone=cloud.world.zones[0], cidr="172.16.0.0/20", tags=cloud.world.discovery
    )
    yield
    cloud.networks.remove(made.id)


@contextmanager
def security_group(cloud: SimulatedAlibabaCloud, *, vpc_id: str, kind: str) -> Iterator[None]:
    """Let another security group have the cluster's tag."""
    group = cloud.networks.add_security_group(
        vpc_id, name="another", kind=kind, tags=cloud.world.discovery
    )
    yield
    cloud.networks.remove(group.id)


def foreign_group(cloud: SimulatedAlibabaCloud) -> AbstractContextManager[None]:
    vpc = cloud.networks.add_vpc(cidr="172.16.0.0/12")
    return security_group(cloud, vpc_id=vpc.id, kind="enterprise")


def basic_group(cloud: SimulatedAlibabaCloud) -> AbstractContextManager[None]:
    return security_group(cloud, vpc_id=cloud.world.vpc_id, kind="normal")


@contextmanager
def no_such_cluster(cloud: SimulatedAlibabaCloud) -> Iterator[None]:
    """Let ACK know the id that is set only afterwards."""
    yield
    cloud.clusters.add(Cluster(id=STRANGER, name="made later", vpc_id=cloud.world.vpc_id))


def denied(action: str) -> Callable[[SimulatedAlibabaCloud], AbstractContextManager[object]]:
    return lambda cloud: cloud.deny(action)


def in_arrears(cloud: SimulatedAlibabaCloud) -> AbstractContextManager[object]:
    return cloud.fail(
        "RunInstances",
        code="InvalidAccountStatus.NotEnoughBalance",
        message="Your account does not have enough balance.",
        times=None,
    )


def no_key_pair(cloud: SimulatedAlibabaCloud) -> AbstractContextManager[object]:
    return cloud.fail(
        "RunInstances",
        code="InvalidKeyPair.NotFound",
        message="The specified KeyPairName does not exist.",
        status=404,
        times=None,
        where=lambda parameters: parameters.get("KeyPairName") == "nobodys",
    )


WRONG: tuple[UserMistake[SimulatedAlibabaCloud], ...] = (
    UserMistake(
        name="unknown access key",
        condition="VSwitchesReady",
        reason="InvalidAccessKeyIdNotFound",
        must_name=(
            "spec.vSwitchSelectorTerms",
            "vpc:DescribeVSwitches",
            "InvalidAccessKeyId.NotFound",
        ),
        trouble=lambda cloud: key_of(cloud, ID="LTAI5tOfAnotherAccount"),
        cloud_check_names="InvalidAccessKeyId.NotFound",
    ),
    UserMistake(
        name="wrong secret",
        condition="SecurityGroupsReady",
        reason="SignatureDoesNotMatch",
        must_name=("spec.securityGroupSelectorTerms", "SignatureDoesNotMatch"),
        trouble=lambda cloud: key_of(cloud, SECRET="of another key"),
        cloud_check_names="SignatureDoesNotMatch",
    ),
    UserMistake(
        name="no credentials",
        condition="VSwitchesReady",
        reason="InvalidCredentials",
        must_name=("spec.vSwitchSelectorTerms", "credentials"),
        trouble=no_credentials,
        cloud_check_names="credentials",
    ),
    UserMistake(
        name="no permission to look",
        condition="VSwitchesReady",
        reason="ForbiddenRAM",
        must_name=("spec.vSwitchSelectorTerms", "vpc:DescribeVSwitches", "Forbidden.RAM"),
        trouble=denied("vpc:DescribeVSwitches"),
        cloud_check_names="vpc:DescribeVSwitches",
    ),
    UserMistake(
        name="no permission to ask ACK",
        condition="ImagesReady",
        reason="StatusForbidden",
        must_name=("spec.imageSelectorTerms", "cs:DescribeKubernetesVersionMetadata"),
        trouble=denied("cs:DescribeKubernetesVersionMetadata"),
        cloud_check_names="cs:DescribeKubernetesVersionMetadata",
    ),
    UserMistake(
        name="no permission to join nodes",
        condition="ValidationSucceeded",
        reason="StatusForbidden",
        must_name=("user data that joins nodes to the cluster", "cs:DescribeClusterAttachScripts"),
        trouble=denied("cs:DescribeClusterAttachScripts"),
        cloud_check_names="cs:DescribeClusterAttachScripts",
    ),
    UserMistake(
        name="no permission to run instances",
        condition="ValidationSucceeded",
        reason="RunInstancesAuthCheckFailed",
        must_name=("ecs:RunInstances", "Forbidden.RAM"),
        trouble=denied("ecs:RunInstances"),
    ),
    UserMistake(
        name="no permission to make provisioning groups",
        condition="ValidationSucceeded",
        reason=f"{GROUP}AuthCheckFailed",
        must_name=(f"ecs:{GROUP}", "Forbidden.RAM"),
        trouble=denied(f"ecs:{GROUP}"),
    ),
    UserMistake(
        name="no permission to see instances",
        condition="ValidationSucceeded",
        reason="DescribeInstancesAuthCheckFailed",
        must_name=("ecs:DescribeInstances", "Forbidden.RAM"),
        trouble=denied("ecs:DescribeInstances"),
        cloud_check_names="ecs:DescribeInstances",
    ),
    UserMistake(
        name="an account that cannot pay",
        condition="ValidationSucceeded",
        reason="InvalidAccountStatusNotEnoughBalance",
        must_name=("InvalidAccountStatus.NotEnoughBalance",),
        trouble=in_arrears,
    ),
    UserMistake(
        name="no vSwitch selected",
        condition="VSwitchesReady",
        reason="vSwitchesNotFound",
        must_name=("spec.vSwitchSelectorTerms[0] tags {team: nobody}",),
        spec={"vSwitchSelectorTerms": [{"tags": {"team": "nobody"}}]},
    ),
    UserMistake(
        name="vSwitches of two VPCs",
        condition="VSwitchesReady",
        reason="MultipleVPCs",
        must_name=("spec.vSwitchSelectorTerms", "several VPCs"),
        trouble=vswitch_of_another_vpc,
    ),
    UserMistake(
        name="no security group selected",
        condition="SecurityGroupsReady",
        reason="SecurityGroupsNotFound",
        must_name=('spec.securityGroupSelectorTerms[0] name "nobodys"',),
        spec={"securityGroupSelectorTerms": [{"name": "nobodys"}]},
    ),
    UserMistake(
        name="a security group of another VPC",
        condition="SecurityGroupsReady",
        reason="SecurityGroupVPCMismatch",
        must_name=("spec.securityGroupSelectorTerms", "not in the VPC of the vSwitches"),
        trouble=foreign_group,
    ),
    UserMistake(
        name="security groups of two kinds",
        condition="SecurityGroupsReady",
        reason="MixedSecurityGroupTypes",
        must_name=("spec.securityGroupSelectorTerms", "basic (normal) and enterprise groups"),
        trouble=basic_group,
    ),
    UserMistake(
        name="unknown version of an alias",
        condition="ImagesReady",
        reason="ImagesNotFound",
        must_name=('spec.imageSelectorTerms[0] alias "ContainerOS@19990101"', "1.32.1-aliyun.1"),
        spec={"imageSelectorTerms": [{"alias": "ContainerOS@19990101"}]},
    ),
    UserMistake(
        name="invalid user data",
        condition="ValidationSucceeded",
        reason="InvalidUserData",
        must_name=("spec.userData", "MIME"),
        spec={"userData": "MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nnothing"},
    ),
    UserMistake(
        name="unknown key pair",
        condition="ValidationSucceeded",
        reason="InvalidKeyPairNotFound",
        must_name=("spec.keyPairName", "InvalidKeyPair.NotFound"),
        spec={"keyPairName": "nobodys"},
        trouble=no_key_pair,
    ),
    UserMistake(
        name="unknown deployment set",
        condition="ValidationSucceeded",
        reason="InvalidDeploymentSetIdNotFound",
        must_name=("spec.deploymentSetId", "ds-nobodys"),
        spec={"deploymentSetId": "ds-nobodys"},
    ),
    UserMistake(
        name="unknown cluster",
        condition="ImagesReady",
        reason="ErrorClusterNotFound",
        must_name=("--cluster-id", f'"{STRANGER}"', "cn-hangzhou"),
        trouble=no_such_cluster,
        settings={"cluster_id": STRANGER},
        cloud_check_names="--cluster-id",
    ),
)

TYPES = ("ecs.c7.large", "ecs.g7.large", "ecs.g8y.large")
SPARE = "spare"
"""NodePool and NodeClass with which nothing is wrong."""
SPOT = {"karpenter.sh/capacity-type": ["spot"]}
POOL = node_pool_manifest(ECSNodeClass, requirements=SPOT)
SPARE_POOL = node_pool_manifest(ECSNodeClass, SPARE, node_class=SPARE, requirements=SPOT)
POD = pod_manifest("web", **in_pool("general"))
SPARE_POD = pod_manifest("spare", **in_pool(SPARE))


@pytest.fixture(scope="module")
def opened() -> Iterator[CloudStage]:
    """One cloud that sells little, as each process reads its catalogue."""
    cloud_stage = CloudStage([it for it in realistic_types() if it.name in TYPES])
    with cloud_stage.open():
        yield cloud_stage


@pytest.fixture
def cloud_stage(opened: CloudStage) -> CloudStage:
    """The cloud as it was in the beginning."""
    opened.cloud.reset()
    return opened


def mended(cloud_stage: CloudStage, wrong: dict[str, Any]) -> dict[str, Any]:
    """Return the NodeClass as it should have been, without what was wrong in it."""
    right = cloud_stage.node_class()
    return {**right, "spec": {**dict.fromkeys(wrong), **right["spec"]}}


def launched_by(cloud: SimulatedAlibabaCloud) -> list[str]:
    """Return the NodeClasses of all instances, sorted."""
    return sorted(each.tags[NODE_CLASS_TAG] for each in cloud.living())


@pytest.mark.parametrize(
    "case",
    as_cluster_runs(WRONG, but=("wrong secret", "no permission to make provisioning groups")),
)
def test_a_mistake_is_reported_and_nodes_launch_once_it_is_corrected(cloud_stage, tmp_path, case):
    """Conditions, findings, and the number of calls over minutes of simulated time."""
    cloud = cloud_stage.cloud
    is_everybodys = case.trouble is not None and not case.spec

    async def scenario(stage: ProviderCluster) -> None:
        controller = stage.running
        with case.applied_to(cloud):
            cloud.calls.clear()
            stage.apply(cloud_stage.node_class(**case.spec), POOL, POD)
            stage.apply(cloud_stage.node_class(SPARE), SPARE_POOL, SPARE_POD)
            await stage.until_ready("False")
            await stage.advance_minutes(MINUTES)
            # The refused launches are tried again from time to time.
            await stage.until_ready("False")
            calls, launches = len(cloud.calls.all), cloud.calls.count(GROUP)
            user_messages = await stage.user_messages()

        assert controller.is_alive
        assert launched_by(cloud) == ([] if is_everybodys else [SPARE])
        assert case.missing_messages(user_messages) == []
        assert calls <= CALLS_A_MINUTE * MINUTES + CALLS_AT_FIRST
        assert launches <= LAUNCHES_A_MINUTE * (MINUTES + 2)

        if case.spec:
            stage.apply(mended(cloud_stage, case.spec))
        await stage.harness.settle(
            lambda: launched_by(cloud) == ["default", SPARE], seconds=LONGEST_RECOVERY_SECONDS
        )
        assert stage.running is controller
        assert stage.is_ready("True")
        assert await stage.doctor_object_errors() == ""

    cloud_stage.play(tmp_path, scenario, **case.settings)


def without_rules(schema: Any) -> Any:
    """Return a schema that lets everything in, as that of an older version might have."""
    if isinstance(schema, list):
        return [without_rules(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_rules(value)
        for key, value in schema.items()
        if key not in {"x-kubernetes-validations", "pattern", "enum"}
    }


def test_a_stored_unknown_image_family_is_reported(cloud_stage, tmp_path):
    """Case 17: an older CRD let it in."""

    async def scenario(stage: ProviderCluster) -> None:
        cluster = stage.harness.cluster
        name = f"{ECSNodeClass.resource.plural}.{ECSNodeClass.resource.group}"
        stored = cluster.find(CUSTOM_RESOURCE_DEFINITIONS, name)
        assert stored is not None
        ours = {**deepcopy(stored), "metadata": {"name": name}}
        stage.apply({**ours, "spec": without_rules(ours["spec"])})
        stage.apply(cloud_stage.node_class(imageSelectorTerms=[{"alias": "Debian"}]), POOL, POD)
        stage.apply(ours)
        await stage.until_ready("False")
        await stage.advance_minutes(MINUTES)

        user_messages = stage.conditions()["ImagesReady"]
        assert (user_messages["status"], user_messages["reason"]) == ("False", "ImagesNotFound")
        for each in ('spec.imageSelectorTerms[0] alias "Debian"', "ContainerOS"):
            assert each in user_messages["message"]
            assert each in await stage.doctor_object_errors()
        assert stage.running.is_alive
        assert not cloud_stage.cloud.living()

        stage.apply(cloud_stage.node_class())
        await stage.harness.settle(lambda: launched_by(cloud_stage.cloud) == ["default"])

    cloud_stage.play(tmp_path, scenario)


def deleted_key(cloud: SimulatedAlibabaCloud) -> AbstractContextManager[object]:
    """Delete the key that the process has; the status of HTTP is that of what does not exist."""
    return cloud.fail("*", code="InvalidAccessKeyId.NotFound", status=404, times=None)


@pytest.mark.parametrize(
    ("trouble", "condition"),
    [
        (deleted_key, "VSwitchesReady"),
        (denied("ecs:Describe*"), "SecurityGroupsReady"),
        (denied("cs:*"), "ImagesReady"),
        (vswitch_of_another_vpc, "VSwitchesReady"),
    ],
    ids=["key", "permissions", "permissions for ACK", "VPC"],
)
def test_a_later_fault_costs_no_instance(cloud_stage, tmp_path, trouble, condition):
    """A running instance goes on in any state of the NodeClass."""
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        stage.apply(cloud_stage.node_class(), POOL, POD)
        await stage.harness.settle(lambda: len(cloud.living()) == 1)
        claims = {claim["metadata"]["uid"] for claim in stage.harness.claims()}
        with trouble(cloud):
            await stage.until_ready("False", seconds=1000)
            # Longer would end the claim: nothing here makes a Node of the instance.
            await stage.advance_minutes(3)
            assert stage.conditions()[condition]["status"] == "False"
            assert stage.running.is_alive
            assert {claim["metadata"]["uid"] for claim in stage.harness.claims()} == claims
            assert not cloud.calls.of("DeleteInstance")
            assert not cloud.calls.of("DeleteInstances")
            assert len(cloud.held().instances) == 1
        await stage.until_ready("True", seconds=1000)

    cloud_stage.play(tmp_path, scenario)
