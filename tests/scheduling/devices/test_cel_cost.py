"""Selectors that would take all memory or time are refused before they are evaluated."""

from __future__ import annotations

from decimal import Decimal

import pytest

from karpenter_core.api.devices import Device, DeviceCapacity
from karpenter_core.scheduling.devices.cel_cost import check_cost
from karpenter_core.scheduling.devices.selectors import (
    DeviceSelectorError,
    matches_device,
    selector_problem,
)

MANY = f"[{','.join('0' * 200)}]"
LONG = f"'{'x' * 200}'"


USUAL = (
    "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model.matches('^a') && "
    "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"
)


def binds(depth):
    """An expression whose value doubles with each of its variables."""
    expression = f"v{depth}.size() > 0"
    for number in range(depth, 0, -1):
        expression = f"cel.bind(v{number}, v{number - 1} + v{number - 1}, {expression})"
    return expression.replace("v0", "'x'")


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000000000).size() > 0",
        "lists.range(0x7fffffff).all(x, x >= 0)",
        "lists.range(1000 * 1000 * 1000).size() > 0",
        "lists.range(9999).all(a, lists.range(9999).all(b, true))",
        f"{MANY}.all(a, {MANY}.all(b, {MANY}.all(c, {MANY}.exists(d, d == a))))",
        f"{MANY}.map(a, {MANY}).map(b, b.map(c, {MANY})).map(d, d.size()).size() > 0",
        f"{LONG}.replace('x', {LONG}).replace('x', {LONG}).size() > 0",
        binds(40),
        "(" * 3000 + "true" + ")" * 3000,
    ],
)
def test_an_expression_that_may_cost_too_much_is_not_evaluated(expression):
    """`karpenter plan` reads files that no API server has seen."""
    assert "may cost more than an API server allows" in selector_problem(expression)
    with pytest.raises(DeviceSelectorError, match="use fewer or shorter loops"):
        matches_device(expression, Device(name="gpu-0"), "gpu.example.com")


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "lists.range(100).size() == 100",
        "'a,b'.split(',').all(x, x in ['a', 'b'])",
        f"{MANY}.all(a, {MANY}.all(b, a == b))",
        "device.attributes['gpu.example.com'].all(a, device.capacity['gpu.example.com'].all(b, true))",
        USUAL,
        "'a-b-c-d'.replace('-', '_').replace('a', 'b').replace('c', 'long-word') == 'b_b_long-word_d'",
        "cel.bind(m, device.attributes['gpu.example.com'], m.model == 'a100' || m.model == 'h100')",
        "[1, 2].all(x, x > 0) && " * 100 + "true",
        binds(10),
        "(" * 50 + "true" + ")" * 50,
    ],
)
def test_an_expression_of_usual_cost_is_evaluated(expression):
    check_cost(expression)


@pytest.mark.parametrize("text", ["", ")", "]]", "a.map(", "x.all()", "lists.range()", "'", "f(,)"])
def test_text_that_is_no_expression_is_left_to_the_compiler(text):
    check_cost(text)


def test_a_cost_in_bounds_does_not_change_the_answer():
    memory = DeviceCapacity(name="gpu.example.com/memory", value=Decimal(40))
    device = Device(name="gpu-0", capacity=(memory,))
    expression = "lists.range(3).map(x, x + 1) == [1, 2, 3] && device.driver == 'gpu.example.com'"
    assert matches_device(expression, device, "gpu.example.com")
