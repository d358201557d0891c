"""Launches tried out over the simulated AWS (acceptance cases 136-139)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_provider_aws.catalogue.instance_types import CatalogueInputs
from providers.aws.tests.catalogue.recorded_region import NOW, World
from providers.aws.tests.node_class.resolvers import (
    conditions,
    node_pool,
    sold,
    statuses,
)

TYPE = "ValidationSucceeded"


def validation_condition(node_class):
    return conditions(node_class)[TYPE]


def dry_runs(aws, action):
    return [call.parameters for call in aws.calls.of(action) if call.parameters.get("DryRun")]


# -- What passes --------------------------------------------------------------------------------


def test_a_template_is_made_and_both_calls_are_tried_out(parts, aws):
    """In this order, with the template, all subnets, and the tags of launches."""
    found = parts.resolve(parts.node_class(tags={"team": "web"}, context="abc"))

    assert validation_condition(found).status == "True"
    (template,) = aws.held().launch_templates
    (fleet,) = dry_runs(aws, "CreateFleet")
    (config,) = fleet["LaunchTemplateConfigs"]
    assert config["LaunchTemplateSpecification"]["LaunchTemplateName"] == template
    assert {o["SubnetId"] for o in config["Overrides"]} == set(aws.world.subnets.values())
    assert fleet["Context"] == "abc"
    specs = {spec["ResourceType"]: spec["Tags"] for spec in fleet["TagSpecifications"]}
    assert set(specs) == {"instance", "volume", "fleet"}
    assert {"Key": "team", "Value": "web"} in specs["instance"]
    assert {"Key": "eks:eks-cluster-name", "Value": aws.world.cluster} in specs["instance"]
    (instance,) = dry_runs(aws, "RunInstances")  # the first subnet passes
    assert (instance["MinCount"], instance["MaxCount"]) == (1, 1)  # quotas are checked, too
    assert instance["NetworkInterfaces"][0]["SubnetId"] == found.status.subnets[0].id
    assert not aws.held().instances


def test_a_successful_trial_is_valid_for_half_an_hour(parts, aws):
    """Unless an annotation changes, or anything else."""
    found = parts.resolve(parts.node_class())
    for _ in range(3):
        parts.clock.forward(minutes=9)
        found = parts.resolve(found)
    assert len(dry_runs(aws, "CreateFleet")) == 1

    metadata = found.metadata.model_copy(update={"annotations": {"try": "again"}})
    parts.resolve(found.model_copy(update={"metadata": metadata}))
    assert len(dry_runs(aws, "CreateFleet")) == 2

    parts.clock.forward(minutes=3)
    parts.resolve(found)
    assert len(dry_runs(aws, "CreateFleet")) == 3


def test_nothing_is_tried_out_when_that_is_disabled(make_parts, aws):
    """Case 138."""
    parts = make_parts(disable_dry_run=True)

    assert statuses(parts.resolve(parts.node_class()))["Ready"] == "True"

    assert not dry_runs(aws, "CreateFleet")
    assert aws.calls.count("CreateLaunchTemplate") == 0


def test_interfaces_of_the_node_class_are_tried_out_too(parts, aws):
    """Each in the subnet that is tried."""
    interfaces = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]
    found = parts.resolve(parts.node_class(network_interfaces=interfaces))

    asked = dry_runs(aws, "RunInstances")[0]["NetworkInterfaces"]
    assert [each["InterfaceType"] for each in asked] == ["interface", "efa-only"]
    assert {each["SubnetId"] for each in asked} <= {s.id for s in found.status.subnets}


def test_a_subnet_that_fails_is_followed_by_the_next(parts, aws):
    """Case 137."""
    with aws.fail("RunInstances", code="InternalError", status=500, times=1):
        found = parts.resolve(parts.node_class())

    assert validation_condition(found).status == "True"
    assert len(dry_runs(aws, "RunInstances")) == 2


def test_a_lack_of_capacity_is_no_lack_of_permission(parts, aws):
    """Another type, or another hour, may have some."""
    with aws.fail("RunInstances", code="InsufficientInstanceCapacity", status=500, times=None):
        assert validation_condition(parts.resolve(parts.node_class())).status == "True"


def test_a_vanished_template_is_created_again(parts, aws):
    """It was deleted by others."""
    missing = "InvalidLaunchTemplateName.NotFoundException"
    with aws.fail("CreateFleet", code=missing, times=1):
        assert validation_condition(parts.resolve(parts.node_class())).status == "True"


# -- What does not ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed"),
        ("CreateFleet", "CreateFleetAuthCheckFailed"),
        ("RunInstances", "RunInstancesAuthCheckFailed"),
    ],
)
@pytest.mark.parametrize(
    ("because", "named"),
    [
        ("", "no identity-based policy"),
        ("with an explicit deny in a permissions boundary", "permissions boundary"),
        ("with an explicit deny in a service control policy", "service control policy"),
    ],
)
def test_a_missing_permission_is_reported_and_remembered(
    parts, aws, action, reason, because, named
):
    """Case 136: for half an hour, or until an annotation changes."""
    with aws.fail(
        action,
        code="UnauthorizedOperation",
        message=f"You are not authorized {because}",
        status=403,
        times=None,
    ):
        found = parts.resolve(parts.node_class())
    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        reason,
    )
    assert f"ec2:{action}" in validation_condition(found).message
    assert named in validation_condition(found).message
    assert f"ec2:{action}" in conditions(found)["Ready"].message

    parts.clock.forward(minutes=5)
    assert validation_condition(parts.resolve(found)) == validation_condition(found)
    metadata = found.metadata.model_copy(update={"annotations": {"try": "again"}})
    again = parts.resolve(found.model_copy(update={"metadata": metadata}))
    assert validation_condition(again).status == "True"


SUBNETS = 3
ATTEMPTS = 3


@pytest.mark.parametrize(
    ("action", "code", "status", "calls"),
    [
        ("CreateFleet", "RequestLimitExceeded", 503, ATTEMPTS),
        ("CreateFleet", "InternalError", 500, 1),
        ("RunInstances", "RequestLimitExceeded", 503, ATTEMPTS),
        ("RunInstances", "InternalError", 500, SUBNETS),
        ("CreateLaunchTemplate", "RequestLimitExceeded", 503, ATTEMPTS),
        ("CreateLaunchTemplate", "InternalError", 500, ATTEMPTS),
    ],
)
def test_an_aws_fault_changes_nothing_and_is_retried(parts, aws, action, code, status, calls):
    """Case 137: a condition that is there stands; dry runs that fail are made once."""
    good = parts.resolve(parts.node_class())
    changed = good.model_copy(
        update={"metadata": good.metadata.model_copy(update={"annotations": {"a": "b"}})}
    )
    parts.clock.forward(minutes=2)
    parts.templates.sweep()
    aws.calls.clear()
    with aws.fail(action, code=code, status=status, times=None):
        resolution = parts.resolver.resolve(changed)

    assert TYPE not in {condition.type for condition in resolution.conditions}
    assert resolution.retry_after == timedelta(seconds=10)
    assert len(good.status.subnets) == SUBNETS
    assert aws.calls.count(action) == calls


def test_a_fault_before_the_first_answer_is_unknown(parts, aws):
    """With its cause."""
    with aws.fail("CreateFleet", code="RequestLimitExceeded", status=503, times=None):
        found = parts.resolve(parts.node_class())

    assert validation_condition(found).status == "Unknown"
    assert "RequestLimitExceeded" in validation_condition(found).message


def test_an_instance_profile_that_is_missing_is_named(parts, aws):
    """Case 139: when it is the user's own; once it is there, that is seen the next time."""
    own = parts.node_class(instance_profile="mine")
    with aws.fail(
        "CreateFleet",
        code="InvalidParameterValue",
        message="Value (mine) for parameter iamInstanceProfile.name is invalid. "
        "Invalid IAM Instance Profile name",
        times=None,
    ):
        found = parts.resolve(own)
        assert (validation_condition(found).status, validation_condition(found).reason) == (
            "False",
            "InstanceProfileNotFound",
        )
        assert (
            'spec.instanceProfile: there is no instance profile "mine"'
            in validation_condition(found).message
        )

        made = parts.resolver.resolve(parts.node_class(uid="uid-2"))
        ours = {condition.type: condition for condition in made.conditions}
        assert ours[TYPE].status == "Unknown"
        assert made.retry_after == timedelta(seconds=10)
    parts.profiles._clients.iam.create_instance_profile(InstanceProfileName="mine")
    assert validation_condition(parts.resolve(found)).status == "True"


def test_a_refused_trial_is_reported_with_its_code(parts, aws):
    """Not remembered: it may be mended in AWS alone."""
    with aws.fail(
        "RunInstances", code="InvalidBlockDeviceMapping", message="too small", times=None
    ):
        found = parts.resolve(parts.node_class())
    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "DryRunRefused",
    )
    assert "ec2:RunInstances" in validation_condition(found).message
    assert "InvalidBlockDeviceMapping: too small" in validation_condition(found).message
    assert validation_condition(parts.resolve(found)).status == "True"


def test_user_data_beyond_the_limit_is_reported(parts):
    """EC2 says so itself."""
    found = parts.resolve(parts.node_class(user_data="#!/bin/sh\n" + "#" * 20_000))

    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "UserDataSizeLimitExceeded",
    )
    assert "spec.userData" in validation_condition(found).message


def test_unmergeable_user_data_is_reported_without_a_call(make_parts, aws):
    """Also when nothing is tried out."""
    parts = make_parts(disable_dry_run=True)
    found = parts.resolve(
        parts.node_class(
            ami_selector_terms=[{"alias": "bottlerocket@latest"}], user_data="[settings"
        )
    )

    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "InvalidUserData",
    )
    assert "spec.userData" in validation_condition(found).message


def test_restricted_tags_are_refused(parts, aws):
    """An old CRD lets them in."""
    found = parts.resolve(parts.node_class(tags={"karpenter.sh/nodepool": "mine", "a": "b"}))

    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "TagValidationFailed",
    )
    assert "spec.tags: karpenter.sh/nodepool" in validation_condition(found).message
    assert not dry_runs(aws, "CreateFleet")


@pytest.mark.parametrize(
    ("kubelet", "gates", "reason"),
    [
        ({"imageGCHighThresholdPercent": 101}, (), "InvalidKubeletConfiguration"),
        ({"maxPods": "vcpus * 4"}, (), "KubeletExpressionsDisabled"),
        ({"maxPods": "vcpus *"}, ("NodeClassCEL",), "KubeletExpressionInvalid"),
    ],
)
def test_kubelet_settings_override_discovered_values(make_parts, kubelet, gates, reason):
    """They are the user's to mend, whether or not subnets are there."""
    parts = make_parts(gates=frozenset(gates))
    found = parts.resolve(
        parts.node_class(kubelet=kubelet, subnet_selector_terms=[{"id": "subnet-0gone"}])
    )

    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        reason,
    )
    assert "spec.kubelet" in validation_condition(found).message


def test_expressions_wait_for_the_catalogue(make_parts):
    """While it is empty nothing is said."""
    parts = make_parts(gates=frozenset({"NodeClassCEL"}))
    resolution = parts.resolver.resolve(parts.node_class(kubelet={"maxPods": "vcpus * 4"}))

    (condition,) = (c for c in resolution.conditions if c.type == TYPE)
    assert (condition.status, condition.reason) == ("Unknown", "CloudUnreachable")


def test_unusable_kubelet_settings_are_reported(parts):
    """Though no check had found them."""
    parts.catalogue.error = BadInputError('EC2NodeClass "default": spec.kubelet.maxPods: no')
    found = parts.resolve(parts.node_class())

    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "InvalidKubeletConfiguration",
    )


def test_user_data_that_only_a_launch_template_shows_to_be_unusable_is_reported(parts, monkeypatch):
    """Though no check had found it."""

    def failing(*_):
        raise BadInputError("spec.userData: it cannot be merged")

    monkeypatch.setattr(type(parts.trial), "_template", failing)
    found = parts.resolve(parts.node_class())
    condition = validation_condition(found)
    assert (condition.status, condition.reason) == ("False", "InvalidUserData")
    assert "spec.userData: it cannot be merged" in condition.message


@pytest.mark.parametrize("error", [CloudProviderError("nothing is known"), None])
def test_without_a_catalogue_nothing_is_tried_out(parts, error):
    """It is being read."""
    parts.catalogue.error, parts.catalogue.types = error, ()
    assert validation_condition(parts.resolve(parts.node_class())).status == "Unknown"


def test_images_that_no_type_boots_are_named(parts, aws):
    """They were found, but launches would be refused."""
    parts.catalogue.types = (sold("odd.large", 1.0, arch="s390x"),)
    found = parts.resolve(parts.node_class())

    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "NoInstanceType",
    )
    assert found.status.amis[0].id in validation_condition(found).message


# -- The cluster's network ----------------------------------------------------------------------


def test_al2023_needs_the_cidr_of_services(parts, aws):
    """It is asked of EKS once; other families do not need it."""
    with aws.deny("eks:DescribeCluster"):
        found = parts.resolve(parts.node_class())
        other = parts.resolve(
            parts.node_class(ami_selector_terms=[{"alias": "bottlerocket@latest"}])
        )
    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "ClusterCIDRResolutionFailed",
    )
    assert "eks:DescribeCluster" in validation_condition(found).message
    assert validation_condition(other).status == "True"

    aws.calls.clear()
    for _ in range(2):
        found = parts.resolve(found)
    assert validation_condition(found).status == "True"
    assert aws.calls.count("DescribeCluster") == 1


def test_an_eks_fault_changes_nothing(parts, aws, monkeypatch):
    """It is asked again the next time."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)
    with aws.fail("DescribeCluster", code="ServerException", status=500, times=None):
        assert validation_condition(parts.resolve(parts.node_class())).status == "Unknown"


def test_a_cidr_from_the_core_is_not_queried(make_parts, aws):
    """The core may know it."""
    parts = make_parts(cidrs=["10.100.0.0/16"])
    assert validation_condition(parts.resolve(parts.node_class())).status == "True"
    assert aws.calls.count("DescribeCluster") == 0


# -- Node pools ---------------------------------------------------------------------------------


def test_trials_use_requirements_of_node_pools(parts, aws):
    """Dedicated tenancy too, which needs more permissions."""
    parts.catalogue.pools = (
        node_pool("a", ("node.kubernetes.io/instance-type", "c5.large")),
        node_pool(
            "b",
            ("node.kubernetes.io/instance-type", "c5.large"),
            ("karpenter.k8s.aws/instance-tenancy", "default", "dedicated"),
        ),
    )
    parts.resolve(parts.node_class())

    (instance,) = dry_runs(aws, "RunInstances")
    assert instance["InstanceType"] == "c5.large"
    (made,) = aws.calls.of("CreateLaunchTemplate")
    assert made.parameters["LaunchTemplateData"]["Placement"]["Tenancy"] == "dedicated"


class RealTypes:
    """Some types of the region, as the catalogue resolves them."""

    NAMES = ("a1.large", "c5.large", "g5.xlarge", "inf2.xlarge", "m5.large", "m6g.medium")

    def __init__(self):
        self.world = World(*self.NAMES)
        self.infos = tuple(self.world.region.types.values())
        self.pools = (node_pool("every"),)

    def instance_types(self, node_class):
        return self.world.catalogue.instance_types(node_class, CatalogueInputs(now=NOW))

    def sizing_of(self, node_class):
        return self.world.catalogue.sizing(node_class, CatalogueInputs(now=NOW))

    def node_pools(self, _node_class):
        return self.pools


@pytest.mark.parametrize(
    ("alias", "name"),
    [("al2023@latest", "m6g.medium"), ("bottlerocket@latest", "m6g.medium")],
)
def test_the_cheapest_ordinary_type_of_the_catalogue_is_tried_out(parts, aws, alias, name):
    """None with accelerators, and none that the family does not run on."""
    types = RealTypes()
    parts.trial._catalogue = types

    found = parts.resolve(parts.node_class(ami_selector_terms=[{"alias": alias}]))

    assert validation_condition(found).status == "True"
    (instance,) = dry_runs(aws, "RunInstances")
    assert instance["InstanceType"] == name
    (made,) = aws.calls.of("CreateLaunchTemplate")
    image_id = made.parameters["LaunchTemplateData"]["ImageId"]
    assert aws.images.get(image_id).architecture == "arm64"


def test_a_failing_expression_is_reported_with_its_type(make_parts):
    """Every type of the region is tried."""
    types = RealTypes()
    parts = make_parts(gates=frozenset({"NodeClassCEL"}), infos=types.infos)
    found = parts.resolve(parts.node_class(kubelet={"maxPods": "100 / (vcpus - 2)"}))

    assert (validation_condition(found).status, validation_condition(found).reason) == (
        "False",
        "KubeletExpressionEvaluationFailed",
    )
    assert "100 / (vcpus - 2)" in validation_condition(found).message
    assert "large" in validation_condition(found).message

    good = parts.resolve(parts.node_class(kubelet={"maxPods": "vcpus * 4"}))
    assert validation_condition(good).status == "True"
