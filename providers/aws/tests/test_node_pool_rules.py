"""Tests requirements of NodePools against the provider's labels."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, RESTRICTED_DOMAIN, WELL_KNOWN
from karpenter_core.lifecycle.nodepool.validation import LabelRules, validate_node_pool
from karpenter_core.testing.builders import node_pool
from karpenter_provider_aws.labels import INSTANCE_TENANCY, LABEL_CLASSES

ALL_LABELS = sorted((WELL_KNOWN | LABEL_CLASSES.well_known) - {NODE_POOL})
RULES = LabelRules(
    well_known=WELL_KNOWN | LABEL_CLASSES.well_known,
    restricted_domains=LABEL_CLASSES.restricted_domains | {RESTRICTED_DOMAIN},
    aliases=LABEL_CLASSES.aliases,
    known_values=LABEL_CLASSES.known_values,
)


def complaints(**fields):
    return validate_node_pool(node_pool(**fields), rules=RULES).errors


@pytest.mark.parametrize("label", ALL_LABELS)
def test_every_well_known_label_may_be_required_and_set(label):
    if label not in (CAPACITY_TYPE, INSTANCE_TENANCY):
        assert complaints(requirements=[(label, "In", "test")]) == ()
    assert complaints(labels={label: "test"}) == ()


@pytest.mark.parametrize(
    ("key", "values", "is_valid"),
    [
        (CAPACITY_TYPE, ["on-demand"], True),
        (CAPACITY_TYPE, ["on-demand", "xspot"], True),
        (CAPACITY_TYPE, ["xspot"], False),
        (INSTANCE_TENANCY, ["default"], True),
        (INSTANCE_TENANCY, ["dedicated", "default"], True),
        (INSTANCE_TENANCY, ["default", "xdedicated"], True),
        (INSTANCE_TENANCY, ["xdedicated"], False),
    ],
)
def test_at_least_one_value_must_exist(key, values, is_valid):
    found = complaints(requirements=[(key, "In", *values)])

    assert (found == ()) is is_valid
    assert all(key in text and values[0] in text for text in found)


def test_other_labels_of_the_providers_domain_are_its_own():
    assert complaints(labels={"karpenter.k8s.aws/mine": "x"}) != ()
    assert complaints(labels={"example.com/mine": "x"}) == ()
