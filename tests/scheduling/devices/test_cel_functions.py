"""Selectors compare quantities and semantic versions as Kubernetes' CEL libraries do."""

from __future__ import annotations

import pytest

from karpenter_core.scheduling.devices import cel_functions
from karpenter_core.scheduling.devices.selectors import (
    DeviceSelectorError,
    matches_device,
    selector_problem,
)
from tests.scheduling.devices.builders import DRIVER, device

ANY = device("d")


def holds(expression):
    """Return the value of an expression that is about no device."""
    return matches_device(expression, ANY, DRIVER)


@pytest.mark.parametrize(
    "expression",
    [
        'isSemver("1.2.3")',
        'isSemver("1.2.3-rc.1+build")',
        '!isSemver("v1.2.3")',
        '!isSemver("1.2")',
        '!isSemver("01.2.3")',
        '!isSemver("one")',
        'isSemver("v1.2", true)',
        'isSemver("01.2", true)',
        '!isSemver("v1.2", false)',
        '!isSemver("one", true)',
    ],
)
def test_a_text_is_a_version_only_as_far_as_it_is_to_be_completed(expression):
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'semver("v1.02", true).compareTo(semver("1.2.0")) == 0',
        'semver("1.2.3").isLessThan(semver("1.10.0"))',
        'semver("1.2.3-rc.1").isLessThan(semver("1.2.3"))',
        'semver("1.2.3-rc.2").isLessThan(semver("1.2.3-rc.10"))',
        '!semver("1.2.3").isGreaterThan(semver("1.2.3+build"))',
        'semver("4.5.6").major() == 4 && semver("4.5.6").minor() == 5',
        'semver("4.5.6").patch() == 6',
    ],
)
def test_versions_are_compared_by_their_numbers_and_before_their_release(expression):
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'isQuantity("1.5Gi")',
        '!isQuantity("much")',
        'quantity("1.5").isInteger() == false',
        'quantity("2000m").isInteger()',
        'quantity("9223372036854775807").isInteger()',
        '!quantity("9223372036854775807").add(1).isInteger()',
        'quantity("2000m").asInteger() == 2',
        'quantity("-1").sign() == -1 && quantity("0").sign() == 0 && quantity("1k").sign() == 1',
        'quantity("1Gi").add(quantity("1Gi")).compareTo(quantity("2Gi")) == 0',
        'quantity("3").sub(1).compareTo(quantity("2")) == 0',
        'quantity("1500m").asApproximateFloat() == 1.5',
    ],
)
def test_quantities_are_exact_numbers(expression):
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'semver("v1.2.3").major() == 1',
        'semver("1.2.3", "yes").major() == 1',
        "semver(1).major() == 1",
        'quantity("1.5").asInteger() == 1',
        'quantity("1").add(true).asInteger() == 2',
    ],
)
def test_a_value_that_is_none_fails_the_selector(expression):
    with pytest.raises(DeviceSelectorError):
        holds(expression)


def test_the_problem_of_an_expression_is_that_it_does_not_compile():
    assert selector_problem("device.driver ==") != ""
    assert selector_problem('device.driver == "gpu.example.com"') == ""


def test_a_map_that_only_looks_like_a_quantity_is_an_error():
    with pytest.raises(ValueError, match="expected a quantity, not"):
        cel_functions._amount({cel_functions._QUANTITY: "many"})
