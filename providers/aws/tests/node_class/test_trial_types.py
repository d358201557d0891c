"""The instance type of a trial launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.catalogue import Requirement
from karpenter_core.testing.builders import instance_type, offering
from karpenter_provider_aws.api.nodeclass import (
    Ami,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
)
from karpenter_provider_aws.families.images import NVIDIA, STANDARD
from karpenter_provider_aws.labels import INSTANCE_GPU_COUNT
from karpenter_provider_aws.node_class.trial_types import trial_tenancy, trial_type
from providers.aws.tests.node_class.resolvers import node_pool, sold

INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def ami(image_id, *extra, arch="amd64"):
    architecture = RequirementSpec(key="kubernetes.io/arch", operator="In", values=(arch,))
    return Ami(id=image_id, requirements=(architecture, *extra))


STANDARD_IMAGE = ami("ami-standard", *STANDARD)
GPU_IMAGE = ami("ami-gpu", *NVIDIA)
ARM_IMAGE = ami("ami-arm", *STANDARD, arch="arm64")


def plain(name, price, **options):
    """A type that says, as all types of the catalogue do, that it has no GPU."""
    made = sold(name, price, **options)
    no_gpu = Requirement.of(INSTANCE_GPU_COUNT, "DoesNotExist")
    return replace(made, requirements=made.requirements.add(no_gpu))


M5, M6G = plain("m5.large", 0.096), plain("m6g.large", 0.077, arch="arm64")
C5, G5 = plain("c5.large", 0.085), sold("g5.xlarge", 0.01, labels={INSTANCE_GPU_COUNT: "1"})
EVERY = node_pool("every")


def node_class(*amis, family="AL2023"):
    return EC2NodeClass(
        spec=EC2NodeClassSpec(ami_family=family), status=EC2NodeClassStatus(amis=amis)
    )


def chosen(types, pools, *amis, family="AL2023"):
    found = trial_type(types, pools, node_class(*amis, family=family))
    return found and found.name


def sold_out(name):
    return instance_type(name, offerings=[offering("a", "spot", 0.001, available=False)])


@pytest.mark.parametrize(
    ("pools", "name"),
    [
        ([EVERY], "c5.large"),
        ([node_pool("one", (INSTANCE_TYPE, "m5.large"))], "m5.large"),
        ([node_pool("label", labels={INSTANCE_TYPE: "m5.large"})], "m5.large"),
        ([node_pool("none", (INSTANCE_TYPE, "z9.large"))], "m5.large"),
        ([], "m5.large"),
    ],
    ids=["cheapest", "requirement", "label", "nothing fits", "no pool"],
)
def test_a_type_that_node_pools_would_take_is_tried(pools, name):
    """The cheapest; a common one where no NodePool says anything."""
    assert chosen([C5, G5, M5], pools, STANDARD_IMAGE) == name


def test_images_with_drivers_are_tried_only_when_there_is_no_other():
    """They need larger volumes."""
    assert chosen([G5, C5], [EVERY], GPU_IMAGE, STANDARD_IMAGE) == "c5.large"
    assert chosen([G5, C5], [EVERY], GPU_IMAGE) == "g5.xlarge"


def test_only_a_type_that_boots_one_of_the_images_is_tried():
    """At any price."""
    assert chosen([C5, M5, M6G], [EVERY], ARM_IMAGE) == "m6g.large"
    assert chosen([C5, M5, M6G], [], ARM_IMAGE) == "m6g.large"
    assert chosen([C5, M5], [EVERY], ARM_IMAGE) is None
    assert chosen([], [EVERY], ARM_IMAGE) is None


def test_available_types_are_tried_before_sold_out_ones():
    """Though the latter is better than nothing."""
    assert chosen([sold_out("a1.large"), C5], [EVERY], STANDARD_IMAGE) == "c5.large"
    assert chosen([sold_out("a1.large")], [EVERY], STANDARD_IMAGE) == "a1.large"


def test_types_are_compared_by_their_cheapest_offering():
    """The dry run asks for that one."""
    mixed = instance_type(
        "m7.large", offerings=[offering("a", "spot", 0.03), offering("a", "on-demand", 0.2)]
    )
    assert chosen([C5, mixed], [EVERY], STANDARD_IMAGE) == "m7.large"


def test_windows_is_tried_with_a_common_type():
    """The catalogue lists types on which none of its images boots."""
    assert chosen([C5, M5], [EVERY], STANDARD_IMAGE, family="Windows2022") == "m5.large"
    assert chosen([C5], [EVERY], STANDARD_IMAGE, family="Windows2022") == "c5.large"


@pytest.mark.parametrize(
    ("values", "tenancy"),
    [((), "default"), (("default",), "default"), (("default", "dedicated"), "dedicated")],
)
def test_dedicated_tenancy_is_tried_where_a_node_pool_allows_it(values, tenancy):
    """It needs more permissions; who says nothing gets none."""
    asked = [("karpenter.k8s.aws/instance-tenancy", *values)] if values else []
    assert trial_tenancy([EVERY, node_pool("asks", *asked)]) == tenancy
