"""A compiled catalogue lives for weeks, and keeps no more of what it was asked than its bounds."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.scheduling.compiled import catalogue as compiled_module
from karpenter_core.scheduling.compiled.catalogue import CompiledCatalogue
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.testing.builders import standard_catalogue
from tests.support.object_sizes import count_held

BOUND = 16
MANY = 400


def compiled():
    return CompiledCatalogue(standard_catalogue(), currency="USD", exchange_rates={})


def count_items():
    """Count what all compiled catalogues keep."""
    return sum(n for name, n in count_held().items() if name.startswith("CompiledCatalogue."))


def invented(key):
    """Return requirements such as those of pods that name something of their own."""
    return [Requirement.of(key, "In", [f"invented-{number}"]) for number in range(MANY)]


@pytest.mark.asyncio
@pytest.mark.parametrize("ask", [CompiledCatalogue.matching_one, CompiledCatalogue.guaranteeing])
async def test_a_catalogue_keeps_the_rows_of_a_bounded_number_of_requirements(ask):
    catalogue = compiled()
    with patch.object(compiled_module, "_MAX_REQUIREMENTS", BOUND):
        before = count_items()
        for requirement in invented(INSTANCE_TYPE):
            ask(catalogue, requirement)
    assert 0 < count_items() - before <= BOUND


@pytest.mark.asyncio
async def test_a_label_that_no_type_defines_takes_no_memory():
    catalogue = compiled()
    before = count_items()
    for requirement in invented("example.com/job"):
        assert catalogue.matching_one(requirement) == catalogue.all_bits
    assert count_items() == before


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
