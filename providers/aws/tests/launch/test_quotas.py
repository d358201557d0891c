"""A quota of vCPUs masks the types that it covers, and no others."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.errors import InsufficientCapacityError
from karpenter_core.lifecycle.nodeclaim.launch import exhausted_offerings
from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_aws.launch.quotas import quota_class
from providers.aws.tests.launch.processes import SPOT, claim_of

TYPES = ("m5.large", "c5.large", "t3.large", "x1e.xlarge", "inf1.xlarge")


@pytest.fixture
def process(make_process):
    return make_process(types=TYPES)


def test_the_spot_quota_of_a_class_leaves_the_spot_of_others(aws, process, node_class):
    """The claim may only be an m5.large; what is masked are all standard types that it names."""
    aws.capacity.limit_spot_instances(0, group="standard")
    claim = claim_of("full", SPOT, (INSTANCE_TYPE, "m5.large", "c5.large"))
    request = process.request(claim, node_class)

    (outcome,) = process.launcher.launch([request])

    assert isinstance(outcome, InsufficientCapacityError)
    masked = exhausted_offerings(
        outcome,
        tuple(process.types(node_class).values()),
        Requirements.from_specs(claim.spec.requirements),
    )
    assert {key.instance_type for key in masked} == {"m5.large", "c5.large"}
    assert {key.capacity_type for key in masked} == {"spot"}
    other = process.launch_one(claim_of("other", SPOT, (INSTANCE_TYPE, "x1e.xlarge")), node_class)
    assert other.capacity_type == "spot"


def test_a_spot_quota_masks_unrequested_types_of_its_class(aws, process, node_class, monkeypatch):
    """A fleet asks for the cheapest types alone; the next one would meet the same quota."""
    monkeypatch.setattr("karpenter_provider_aws.launch.filters.MAX_INSTANCE_TYPES", 1)
    aws.capacity.limit_spot_instances(0, group="standard")

    outcome = process.launch_one(claim_of("any", SPOT), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert len({o["InstanceType"] for o in overrides(aws)}) == 1
    named = {key.instance_type for key in outcome.offerings}
    assert named == {"m5.large", "c5.large", "t3.large"}


def overrides(aws):
    (call,) = aws.calls.of("CreateFleet")
    return [o for each in call.parameters["LaunchTemplateConfigs"] for o in each["Overrides"]]


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("m7g.large", "standard"),
        ("t3.micro", "standard"),
        ("im4gn.large", "standard"),
        ("g5.xlarge", "g"),
        ("gr6.4xlarge", "g"),
        ("vt1.3xlarge", "g"),
        ("inf2.xlarge", "inf"),
        ("p4d.24xlarge", "p"),
        ("p5en.48xlarge", "p5"),
        ("trn1.2xlarge", "trn"),
        ("u-6tb1.56xlarge", "u"),
        ("u7i-12tb.224xlarge", "u"),
        ("x2iedn.xlarge", "x"),
        ("dl1.24xlarge", "dl"),
        ("f1.2xlarge", "f"),
    ],
)
def test_types_share_a_quota_by_their_family(instance_type, expected):
    assert quota_class(instance_type) == expected
