"""Quota groups make exactly the offerings unavailable that they match."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.errors import QuotaGroup
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.state.unavailable_offerings import contain_offerings, without_unavailable
from karpenter_core.testing.builders import instance_type
from tests.properties import with_examples

labels = st.sampled_from([("", ""), *product(["family", "pool"], ["m", "c"])])
groups = st.builds(
    lambda label, **fields: QuotaGroup(label=label[0], value=label[1], **fields),
    label=labels,
    least_cpu_milli=st.sampled_from([0, 4000, 8000]),
    zone=st.sampled_from(["", "zone-a"]),
    capacity_type=st.sampled_from(["", "spot"]),
)
TYPES = [
    instance_type("m-4x", cpu="4", labels={"family": "m"}),
    instance_type("m-8x", cpu="8", labels={"family": "m"}),
    instance_type("c-8x", cpu="8", labels={"family": "c"}),
    instance_type("plain", cpu="2"),
]
TYPES += [
    replace(  # a label of offerings, and one that excludes a value
        TYPES[0],
        name="pooled",
        requirements=TYPES[3].requirements.add(Requirement.of("family", "NotIn", ("c",))),
        offerings=tuple(
            replace(
                each,
                requirements=Requirements.from_labels(
                    {
                        ZONE: each.zone,
                        CAPACITY_TYPE: each.capacity_type,
                        "pool": "m" if each.zone == "zone-a" else "c",
                    }
                ),
            )
            for each in TYPES[0].offerings
        ),
    )
]
CATALOGUE = Catalogue(version="v1", instance_types=tuple(TYPES))


def is_in_group(it, offering, group):
    """Tell by the description of `QuotaGroup` whether an offering is in a group."""
    return (
        it.capacity["cpu"] >= group.least_cpu_milli
        and group.zone in {"", offering.zone}
        and group.capacity_type in {"", offering.capacity_type}
        and (
            not group.label
            or any(
                group.label in requirements and requirements.get(group.label).has(group.value)
                for requirements in (it.requirements, offering.requirements)
            )
        )
    )


@with_examples(200)
@given(st.frozensets(groups, max_size=4))
def test_the_offerings_that_a_quota_group_matches_are_unavailable_and_no_others(masked):
    result = without_unavailable(CATALOGUE, masked)

    for it, before in zip(result.instance_types, TYPES, strict=True):
        for now, offering in zip(it.offerings, before.offerings, strict=True):
            is_out = any(is_in_group(before, offering, group) for group in masked)
            assert now.available is not is_out
    assert contain_offerings(masked, TYPES) is (result is not CATALOGUE)
    assert contain_offerings(masked, result.instance_types) is (result is not CATALOGUE)
    assert (result is CATALOGUE) == all(
        each.available for it in result.instance_types for each in it.offerings
    )
