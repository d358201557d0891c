"""Validation of NodeClasses (acceptance cases 13 and 69; section 15)."""

from __future__ import annotations

import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
)
from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
from karpenter_core.provider.kit.node_class.findings import DryRunVerdict
from karpenter_core.provider.kit.node_class.parts import RETRY_SOON, RETRY_USUAL
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.node_class.conditions import ALIBABA_CLOUD_ERRORS
from karpenter_provider_alibabacloud.node_class.dry_runs import dry_run_outcome
from karpenter_provider_alibabacloud.node_class.static_checks import user_data_finding
from providers.alibabacloud.tests.discovery.worlds import node_class_of
from providers.alibabacloud.tests.node_class.conftest import said

LAUNCHES = "RunInstances"


def validation(process, node_class):
    return said(process.resolve(node_class), "ValidationSucceeded")


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"userData": "x" * 33 * 1024}, "InvalidUserData", "33,792 bytes"),
        ({"userData": "x" * (32 * 1024 - 100)}, "InvalidUserData", "that join the node"),
        ({"userData": "MIME-Version: 1.0\nbroken"}, "InvalidUserData", "spec.userData"),
        ({"tags": {"karpenter.sh/nodepool": "x"}}, "TagValidationFailed", "karpenter.sh/nodepool"),
        ({"tags": {"kubernetes.io/cluster/x": ""}}, "TagValidationFailed", "kubernetes.io/cluster"),
        ({"tags": {f"key-{i}": "" for i in range(14)}}, "TagValidationFailed", "14 tags"),
    ],
    ids=["large alone", "large with ours", "no archive", "our tag", "a cluster's tag", "many tags"],
)
def test_a_launch_that_can_never_succeed_is_a_node_class_condition(
    make_process, cloud, spec, reason, words
):
    """Cases 13, 16 and 69: whatever let it in; nothing is launched, nor tried out."""
    process = make_process(dry_runs=True)

    status, why, message = validation(process, node_class_of(cloud, **spec))

    assert (status, why) == ("False", reason)
    assert words in message
    assert cloud.calls.count(LAUNCHES) == 0


def test_a_script_that_may_not_be_fetched_is_said_of_the_node_class(process, cloud):
    cloud.deny("DescribeClusterAttachScripts")

    status, reason, message = validation(process, node_class_of(cloud))

    assert (status, reason) == ("False", "StatusForbidden")
    assert "cs:DescribeClusterAttachScripts" in message


def test_no_trial_launch_runs_before_all_parts_are_resolved(make_process, cloud):
    process = make_process(dry_runs=True)
    node_class = node_class_of(cloud, imageSelectorTerms=[{"id": "m-none"}])

    assert validation(process, node_class) == (
        "False",
        "DependenciesNotReady",
        "waiting for ImagesReady",
    )
    assert cloud.calls.count(LAUNCHES) == 0


def test_kubelet_settings_without_effect_outside_ack_are_a_remark(make_process, cloud):
    """Nodes can be launched all the same, so it is a remark."""
    process = make_process(cluster_type="Custom")
    image = cloud.images.add("golden").id
    images = {"imageSelectorTerms": [{"id": image}]}
    node_class = node_class_of(
        cloud, **images, kubeletConfiguration={"podsPerCore": 4}, formatDataDisk=True
    )

    status, _, message = validation(process, node_class)

    assert status == "True"
    assert "spec.kubeletConfiguration" in message
    assert "spec.formatDataDisk" in message
    assert validation(process, node_class_of(cloud, **images))[2] == ""
    assert cloud.calls.count("DescribeClusterAttachScripts") == 0


@pytest.mark.parametrize(
    ("code", "status", "verdict", "reason"),
    [
        ("DryRunOperation", 400, DryRunVerdict.PASSED, ""),
        ("OperationDenied.NoStock", 403, DryRunVerdict.PASSED, ""),
        ("QuotaExceed.ElasticQuota", 403, DryRunVerdict.PASSED, ""),
        ("Throttling.User", 400, DryRunVerdict.RETRY, "CloudUnreachable"),
        ("InternalError", 500, DryRunVerdict.RETRY, "CloudUnreachable"),
        ("", 0, DryRunVerdict.RETRY, "CloudUnreachable"),
        ("Forbidden.RAM", 403, DryRunVerdict.FAILED, "RunInstancesAuthCheckFailed"),
        ("InvalidRamRole.NotFound", 404, DryRunVerdict.REFUSED, "InvalidRamRoleNotFound"),
        ("InvalidAccountStatus.NotEnoughBalance", 403, DryRunVerdict.REFUSED, None),
        ("SomethingNew", 400, DryRunVerdict.REFUSED, "SomethingNew"),
    ],
)
def test_the_answer_of_a_dry_run_sets_the_condition(code, status, verdict, reason):
    outcome = dry_run_outcome(ApiError(code, "m", "R", status, action="ecs:RunInstances"))

    assert outcome.verdict is verdict
    assert reason is None or outcome.reason == reason
    assert "(request" not in outcome.message


def test_trial_launches_run_once_in_half_an_hour(make_process, cloud):
    """And again at once when the NodeClass changes, or is gone and comes back."""
    process = make_process(dry_runs=True)
    node_class = node_class_of(cloud)

    for _ in range(2):
        assert validation(process, node_class)[0] == "True"
    (call,) = cloud.calls.of(LAUNCHES)
    assert call.dry_run
    assert call.outcome == "DryRunOperation"

    validation(process, node_class_of(cloud, ramRoleName="other"))
    assert cloud.calls.count(LAUNCHES) == 2
    process.later(minutes=30)
    validation(process, node_class)
    assert cloud.calls.count(LAUNCHES) == 3
    process.finalizer.finalize(node_class)
    validation(process, node_class)
    assert cloud.calls.count(LAUNCHES) == 4


def test_a_launch_that_is_not_permitted_is_said_of_the_node_class(make_process, cloud):
    """Until the policy is corrected: each pass tries it again."""
    process = make_process(dry_runs=True)

    with cloud.deny(LAUNCHES):
        status, reason, message = validation(process, node_class_of(cloud))
    mended, _, _ = validation(process, node_class_of(cloud))

    assert (status, reason) == ("False", "RunInstancesAuthCheckFailed")
    assert "ecs:RunInstances" in message
    assert mended == "True"


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("InvalidKeyPair.NotFound", "spec.keyPairName"),
        ("InvalidRamRole.NotEcsRole", "spec.ramRoleName"),
        ("InvalidResourceGroup.NotFound", "spec.resourceGroupId"),
        ("InvalidSystemDiskSize.LessThanImageSize", "spec.systemDisk"),
        ("InvalidDeploymentSetId.NotFound", "spec.deploymentSetId"),
    ],
)
def test_a_refusal_names_the_field_that_it_is_about(code, field):
    outcome = dry_run_outcome(ApiError(code, "m", "R", 404, action="ecs:RunInstances"))

    assert outcome.message == f"{field}: launches would be refused: ecs:RunInstances: {code}: m"


@pytest.fixture
def launches(process, cloud):
    """Notes what came of launches from a NodeClass that were made at once."""
    node_class = node_class_of(cloud)

    def note(*outcomes):
        request = LaunchRequest(node_claim=None, node_class=node_class, instance_types=())
        process.refused_launches.note([request] * len(outcomes), outcomes)
        return validation(process, node_class)

    return note


GROUP = "CreateAutoProvisioningGroup"
NO_GROUPS = AuthError(f"ecs:{GROUP}: Forbidden.RAM: no (request R)", action=f"ecs:{GROUP}")
SOLD_OUT = InsufficientCapacityError("OperationDenied.NoStock")
LAUNCHED = LaunchedInstance(
    provider_id="cn-hangzhou.i-1",
    instance_type="ecs.g7.large",
    zone="cn-hangzhou-b",
    capacity_type="spot",
    capacity={},
    allocatable={},
)


def test_refusals_of_launches_are_in_the_node_class_condition(launches, process, cloud):
    """No dry run covers provisioning groups. The refusal expires, as no event reports its correction."""
    refused = launches(NO_GROUPS)
    sold_out = launches(SOLD_OUT)
    process.later(minutes=5)
    later = validation(process, node_class_of(cloud))

    said_of_it = f"launches were refused: ecs:{GROUP}: Forbidden.RAM: no"
    assert refused == sold_out == ("False", f"{GROUP}AuthCheckFailed", said_of_it)
    assert later[0] == "True"


def test_a_launch_that_succeeds_beside_others_says_that_the_policy_permits_them(launches):
    assert launches(LAUNCHED, NO_GROUPS)[0] == "True"


def test_a_denial_for_one_launch_is_no_denial_for_all(launches):
    refused = ApiError("Forbidden.PrivatePool", "no", "R", 403, action=f"ecs:{GROUP}")
    outcome = AuthError(str(refused), action=refused.action)
    outcome.__cause__ = refused

    assert launches(outcome)[0] == "True"


def test_an_account_that_cannot_pay_is_said_of_the_node_class(launches):
    refused = ApiError("Account.Arrearage", "pay", "R", 403, action=f"ecs:{GROUP}")
    outcome = LaunchFailedError(str(refused), reason="AccountInArrears")
    outcome.__cause__ = refused

    assert launches(outcome)[:2] == ("False", "AccountArrearage")


@pytest.mark.parametrize(
    ("code", "again"),
    [("Account.Arrearage", RETRY_USUAL), ("Forbidden.RAM", RETRY_SOON), ("Throttling", RETRY_SOON)],
)
def test_a_refusal_for_arrears_is_retried_later_than_one_for_permissions(code, again):
    """Somebody has to pay first; a right is granted within minutes."""
    error = LaunchFailedError("refused")
    error.__cause__ = ApiError(code, "no", "R", 403, action=f"ecs:{GROUP}")

    assert ALIBABA_CLOUD_ERRORS.retry_refused_after(error) == again
    assert RETRY_SOON < RETRY_USUAL


@pytest.mark.parametrize("end", ["a launch", "the end"])
def test_a_launch_that_succeeds_and_the_end_of_a_node_class_forget_refusals(
    launches, process, cloud, end
):
    launches(NO_GROUPS)
    if end == "a launch":
        launches(LAUNCHED)
    else:
        process.finalizer.finalize(node_class_of(cloud))

    assert validation(process, node_class_of(cloud))[0] == "True"


def test_validation_without_an_answer_changes_nothing(make_process, cloud):
    process = make_process(dry_runs=True)
    resolved = process.resolve(node_class_of(cloud))
    process.later(minutes=31)
    cloud.cut_off(LAUNCHES)

    resolution = process.resolver.resolve(resolved)

    assert "ValidationSucceeded" not in {c.type for c in resolution.conditions}
    assert resolution.retry_after.total_seconds() == 10


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (LaunchFailedError("no type boots m-1"), ("False", "NoInstanceType")),
        (CloudProviderError("no types yet"), ("Unknown", "CloudUnreachable")),
    ],
)
def test_without_an_instance_type_no_trial_launch_runs(make_process, cloud, error, expected):
    process = make_process(dry_runs=True)
    process.trial.error = error

    assert validation(process, node_class_of(cloud))[:2] == expected
    assert cloud.calls.count(LAUNCHES) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MIME-Version: 1.0\nbroken", "spec.userData is no MIME archive"),
        ("x" * 32_769, "spec.userData: 32,769 bytes, and ECS takes 32,768 at most"),
    ],
    ids=["no archive", "too large"],
)
def test_user_data_that_no_instance_could_have_is_refused_without_a_call(text, message):
    """An admission of manifests has no cloud to ask."""
    node_class = ECSNodeClass.model_validate(
        {"metadata": {"name": "default"}, "spec": {"userData": text}}
    )
    finding = user_data_finding(node_class)
    assert finding is not None
    assert finding.reason == "InvalidUserData"
    assert finding.message.startswith(message)
