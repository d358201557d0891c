"""`cel.bind` gives a value a name in selectors of devices."""

from __future__ import annotations

import pytest

from karpenter_core.scheduling.devices.cel_bind import expand_binds
from karpenter_core.scheduling.devices.selectors import DeviceSelectorError, matches_device
from tests.scheduling.devices.builders import DRIVER, device

GPU = device("gpu-0", model="a100", memory=80)


@pytest.mark.parametrize(
    "expression",
    [
        f'cel.bind(gpu, device.attributes["{DRIVER}"], gpu.model == "a100" && gpu.memory > 40)',
        "cel.bind(a, 2, cel.bind(b, a * 3, a + b)) == 8",
        "cel.bind(a, 1, a) + cel . bind(a, 2, a) == 3",
        "cel.bind(list, [1, 2, 3], list[1] == 2 && size(list) == 3)",
        'cel.bind(text, "a,(b", text == "a,(b")',
        'cel.bind(map, {"a": [1, 2]}, map["a"][1] == 2)',
        'device.driver == "cel.bind(x, y" || true',
        '"cel.bind(" + "x" == r"cel.bind(x"',
        "cel.bind(a, true, a) // cel.bind(",
    ],
)
def test_the_name_stands_for_the_value_in_the_body_alone(expression):
    assert matches_device(expression, GPU, DRIVER)


def test_the_arguments_of_a_function_in_the_value_are_its_own():
    expected = "[max(1, 2)].map(a, a == 2)[0]"
    assert expand_binds("cel.bind(a, max(1, 2), a == 2)") == expected


def test_an_expression_without_the_macro_stays_as_it_is():
    text = "device.driver == \"x\" && mycel.binding(1) == 'cel.bind(a, 1, a)'"
    assert expand_binds(text) == text


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("cel.bind(a, true)", "takes a name, a value and an expression"),
        ("cel.bind(a, true, a, a)", "takes a name, a value and an expression"),
        ("cel.bind(a, true, a", "takes a name, a value and an expression"),
        ("cel.bind(a.b, true, a)", "'a.b' is not a variable name"),
        ("cel.bind(1, true, true)", "'1' is not a variable name"),
    ],
)
def test_a_wrong_use_is_no_supported_selector(expression, problem):
    with pytest.raises(DeviceSelectorError, match="is not supported") as caught:
        matches_device(expression, GPU, DRIVER)
    assert problem in str(caught.value)


def nested(count):
    return "cel.bind(a, true, " * count + "a" + ")" * count


def test_a_selector_has_at_most_a_hundred_uses():
    assert expand_binds(nested(99)).count("map") == 99
    with pytest.raises(ValueError, match="too often"):
        expand_binds(nested(100))


def test_a_selector_of_more_characters_than_kubernetes_accepts_is_refused():
    with pytest.raises(DeviceSelectorError, match="is too long"):
        matches_device("true || " * 1300 + "true", GPU, DRIVER)
