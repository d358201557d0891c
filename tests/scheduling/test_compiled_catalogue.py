"""A compiled catalogue lives for weeks, and keeps no more of what it was asked than its bounds."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.scheduling.compiled import catalogue as compiled_module
from karpenter_core.scheduling.compiled.catalogue import CompiledCatalogue
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.testing.builders import catalogue, instance_type, standard_catalogue
from tests.support.object_sizes import count_held_by

BOUND = 16
MANY = 400


def compiled():
    return CompiledCatalogue(standard_catalogue(), currency="USD", exchange_rates={})


def count_items(catalogue):
    """Count what a compiled catalogue keeps in whatever attributes it has."""
    counts = count_held_by(catalogue)
    return sum(n for name, n in counts.items() if name.startswith("CompiledCatalogue."))


def invented(key):
    """Return requirements such as those of pods that name something of their own."""
    return [Requirement.of(key, "In", [f"invented-{number}"]) for number in range(MANY)]


@pytest.mark.parametrize("ask", [CompiledCatalogue.matching_one, CompiledCatalogue.guaranteeing])
def test_a_catalogue_keeps_the_rows_of_a_bounded_number_of_requirements(ask):
    catalogue = compiled()
    with patch.object(compiled_module, "_MAX_REQUIREMENTS", BOUND):
        before = count_items(catalogue)
        for requirement in invented(INSTANCE_TYPE):
            ask(catalogue, requirement)
    assert 0 < count_items(catalogue) - before <= BOUND


def test_a_label_that_no_type_defines_takes_no_memory():
    catalogue = compiled()
    before = count_items(catalogue)
    for requirement in invented("example.com/job"):
        assert catalogue.matching_one(requirement) == catalogue.all_bits
    assert count_items(catalogue) == before


@pytest.mark.parametrize("key", [INSTANCE_TYPE, ZONE])
def test_rows_are_the_same_after_the_bound_was_reached(key):
    catalogue = compiled()
    asked = [Requirement.of(key, "In", [value]) for value in catalogue.values_of(key)]
    assert asked
    first = [catalogue.matching_one(each) for each in asked]
    with patch.object(compiled_module, "_MAX_REQUIREMENTS", BOUND):
        for each in invented(key):
            catalogue.matching_one(each)
    assert [catalogue.matching_one(each) for each in asked] == first


def test_types_that_exclude_values_match_the_others_and_no_further_type_does():
    """The first type has one value; two types alike take every value but that one."""
    tier = "example.com/tier"

    def of(name, operator):
        made = instance_type(name, cpu="4")
        own = made.requirements.add(Requirement.of(tier, operator, ["gold"]))
        return replace(made, requirements=own)

    made = CompiledCatalogue(
        catalogue(of("a", "In"), of("b", "NotIn"), of("c", "NotIn")),
        currency="USD",
        exchange_rates={},
    )

    def matching(operator, *values):
        rows = made.matching_one(Requirement.of(tier, operator, list(values)))
        return {it.name for row, it in enumerate(made.instance_types) if rows >> row & 1}

    assert matching("In", "silver") == {"b", "c"}
    assert matching("In", "gold") == {"a"}
    assert matching("Exists") == {"a", "b", "c"}
