"""A quota of vCPUs masks the types that it covers, and no others."""

from __future__ import annotations

from itertools import product

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.errors import InsufficientCapacityError
from karpenter_core.lifecycle.nodeclaim.launch import exhausted_offerings
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.unavailable_offerings import without_unavailable
from karpenter_provider_aws.quotas import quota_class
from providers.aws.tests.launch.processes import ON_DEMAND, SPOT, claim_of

TYPES = ("m5.large", "c5.large", "t3.large", "x1e.xlarge", "inf1.xlarge")


@pytest.fixture
def process(make_process):
    return make_process(types=TYPES)


def masked_by(outcome, claim, types):
    """Return type and capacity type of the offerings that the core makes unavailable."""
    requirements = Requirements.from_specs(claim.spec.requirements)
    out = frozenset(exhausted_offerings(outcome, types, requirements))
    before = Catalogue(version="v1", instance_types=tuple(types))
    return {
        (it.name, now.capacity_type)
        for it, open_type in zip(
            without_unavailable(before, out).instance_types, types, strict=True
        )
        for now, then in zip(it.offerings, open_type.offerings, strict=True)
        if then.available and not now.available
    }


def test_the_spot_quota_of_a_class_leaves_the_spot_of_others(aws, process, node_class):
    """The claim may only be an m5.large; what is masked are all standard types that it names."""
    aws.capacity.limit_spot_instances(0, group="standard")
    claim = claim_of("full", SPOT, (INSTANCE_TYPE, "m5.large", "c5.large"))
    request = process.request(claim, node_class)

    (outcome,) = process.launcher.launch([request])

    assert isinstance(outcome, InsufficientCapacityError)
    masked = masked_by(outcome, claim, request.instance_types)
    assert {name for name, _ in masked} == {"m5.large", "c5.large"}
    assert {capacity_type for _, capacity_type in masked} == {"spot"}
    other = process.launch_one(claim_of("other", SPOT, (INSTANCE_TYPE, "x1e.xlarge")), node_class)
    assert other.capacity_type == "spot"


def test_a_spot_quota_masks_unrequested_types_of_its_class(aws, process, node_class, monkeypatch):
    """A fleet asks for the cheapest types alone; the next one would meet the same quota."""
    monkeypatch.setattr("karpenter_provider_aws.launch.filters.MAX_INSTANCE_TYPES", 1)
    aws.capacity.limit_spot_instances(0, group="standard")

    claim = claim_of("any", SPOT)
    request = process.request(claim, node_class)
    (outcome,) = process.launcher.launch([request])

    assert isinstance(outcome, InsufficientCapacityError)
    assert len({o["InstanceType"] for o in overrides(aws)}) == 1
    named = {name for name, _ in masked_by(outcome, claim, request.instance_types)}
    assert named == {"m5.large", "c5.large", "t3.large"}


def test_smaller_types_of_a_class_are_tried_when_the_quota_is_too_low_for_larger_ones(
    aws, make_process, node_class
):
    """Two vCPUs are left: types with four fail without a call, types with two are launched."""
    process = make_process(types=("m5.large", "m5.xlarge", "c5.large", "c5.xlarge"))
    aws.capacity.limit_vcpus(2, group="standard")
    full = process.launch_one(claim_of("full", ON_DEMAND, (INSTANCE_TYPE, "m5.xlarge")), node_class)
    calls = aws.calls.count("CreateFleet")

    again = process.launch_one(
        claim_of("again", ON_DEMAND, (INSTANCE_TYPE, "c5.xlarge")), node_class
    )
    small = process.launch_one(
        claim_of("small", ON_DEMAND, (INSTANCE_TYPE, "c5.large")), node_class
    )

    assert isinstance(full, InsufficientCapacityError)
    assert isinstance(again, InsufficientCapacityError)
    assert small.instance_type == "c5.large"
    assert aws.calls.count("CreateFleet") == calls + 1
    offered = {
        (name, offering.capacity_type): offering.available
        for name, it in process.types(node_class).items()
        for offering in it.offerings
    }
    assert offered == {
        **dict.fromkeys(product(("m5.large", "c5.large"), ("on-demand", "spot")), True),
        **dict.fromkeys(product(("m5.xlarge", "c5.xlarge"), ("on-demand",)), False),
        **dict.fromkeys(product(("m5.xlarge", "c5.xlarge"), ("spot",)), True),
    }


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
