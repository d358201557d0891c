"""CEL expressions in `spec.kubelet` (acceptance cases 63-69)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from karpenter_provider_aws.kubelet.expressions import (
    EvaluationErrors,
    ExpressionError,
    evaluate,
    expression_error,
    is_expression,
    kubelet_expressions,
)
from karpenter_provider_aws.kubelet.sizing import reserved_quantity

M5_LARGE = {
    "vcpus": 2,
    "memory_mib": 8192,
    "default_enis": 3,
    "ips_per_eni": 10,
    "max_pods": 20,
    "instance_type": "m5.large",
}


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("((default_enis - 1) * (ips_per_eni - 1)) + 2", 20),
        ("min(250, (default_enis - 1) * (ips_per_eni - 1) * 16 + 2)", 250),
        ("max(60, vcpus * 30)", 60),
        ("max_pods * 11", 220),
        ("memory_mib / 100", 81),
        ("7 / 2", 3),
        ("(0 - 7) / 2", -3),
        ("(0 - 7) % 3", -1),
        ("instance_type.startsWith('m5.') ? 1 : 2", 1),
        ("instance_type == 'm5.large' && vcpus > 1 ? 1 : 2", 1),
        ("vcpus in [2, 4] ? 1 : 2", 1),
        ("size(instance_type)", 8),
        ("[1, 2].map(x, x * vcpus)[1]", 4),
        ("double(vcpus) * 1.25", 2),
        ("0.0 - 2.9", -2),
        ("0", 0),
    ],
)
def test_an_expression_yields_a_whole_number(expression, result):
    """Cases 63-66 before rounding; a fraction is cut off, and division is that of integers."""
    assert expression_error(expression) == ""
    assert evaluate(expression, M5_LARGE) == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("max(3, 7)", 7),
        ("max(3.9, 7.9)", 7),
        ("max(3, 7.9)", 7),
        ("max(7.9, 3)", 7),
        ("min(3, 7)", 3),
        ("min(3.9, 7.9)", 3),
        ("min(3, 7.9)", 3),
        ("min(7.9, 3)", 3),
        ("int(max(7, 3.5) / 2.0 * 2.0)", 7),
    ],
)
def test_max_and_min_mix_integers_and_doubles(expression, result):
    """A double among the two makes a double."""
    assert evaluate(expression, M5_LARGE) == result


@pytest.mark.parametrize(
    ("resource", "expression", "vcpus", "quantity"),
    [
        ("cpu", "max(60, vcpus*30)", 2, "60m"),
        ("cpu", "max(60, vcpus*30)", 16, "480m"),
        ("cpu", "70+vcpus", 2, "80m"),
        ("cpu", "60+1", 2, "70m"),
        ("cpu", "60+20", 2, "80m"),
        ("memory", "max_pods*11", 2, "224Mi"),
        ("memory", "memory_mib/100", 2, "96Mi"),
        ("memory", "memory_mib/64", 2, "128Mi"),
        ("memory", "vcpus-2", 2, "0Mi"),
        ("pid", "70+1", 2, "71"),
        ("ephemeral-storage", "1+1", 2, "2Gi"),
    ],
)
def test_a_result_is_rounded_to_the_unit_of_its_resource(resource, expression, vcpus, quantity):
    """Cases 64-67."""
    result = evaluate(expression, {**M5_LARGE, "vcpus": vcpus})

    assert reserved_quantity(resource, result) == quantity


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("1 +", r"mismatched input '<EOF>' \(at character 4\)"),
        ("(1", "at character"),
        ("1" + " + 1" * 1000, "longer than"),
        ("foo + 1", "unknown: foo"),
        ("vcpus > 100 ? foo : 1", "unknown: foo"),
        ("vcpus > 100 ? median(1, 2) : 1", r"unknown: median\(\)"),
        ("instance_type.split('.')[0] == 'm5' ? 1 : 2", r"unknown: split\(\)"),
        ("vcpus > 1", "truth value"),
        ("instance_type", "text"),
        ("[1]", "neither number nor text"),
        ("vcpus * 1.5", "No such overload"),
        ("vcpus.size", "No such overload"),
        ("max(vcpus, 'a')", "nothing"),
        ("max(1, 2, 3) + 1", "null"),
        ("max(true, 2)", "nothing"),
        ("memory_mib > 1000000 ? 'all' : 1", "text"),
        ("int('a')", "parse error"),
    ],
)
def test_an_expression_that_never_evaluates_is_an_early_error(expression, problem):
    """Cases 68 and 69 (KubeletExpressionInvalid)."""
    assert re.search(problem, expression_error(expression))
    assert "\n" not in expression_error(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 / (vcpus - 2)", "division by zero"),
        ("1 % (vcpus - 2)", "modulo by zero"),
        ("1.0 / 0.0", "inf"),
        ("0.0 / 0.0", "nan"),
        ("9223372036854775807 + vcpus", "overflow"),
        ("1e300", "64 bits"),
        ("vcpus > 1", "truth value"),
        ("instance_type", "text"),
        ("foo", "foo"),
        ("", "empty"),
    ],
)
def test_a_failing_expression_is_an_error(expression, problem):
    """Case 68."""
    with pytest.raises(ExpressionError, match=problem):
        evaluate(expression, M5_LARGE)


@pytest.mark.parametrize("expression", ["1 / (vcpus - 2)", "1 % (vcpus - 2)", "vcpus - 3"])
def test_an_expression_that_fails_for_some_types_is_no_early_error(expression):
    """It is found by trying every type: KubeletExpressionEvaluationFailed."""
    assert expression_error(expression) == ""


def test_the_largest_integers_are_kept():
    assert evaluate("9223372036854775807", M5_LARGE) == 2**63 - 1
    assert evaluate("-9223372036854775808", M5_LARGE) == -(2**63)


def test_the_first_double_beyond_64_bits_is_no_integer():
    assert evaluate("9223372036854774784.0", M5_LARGE) == 2**63 - 1024
    assert evaluate("-9223372036854775808.0", M5_LARGE) == -(2**63)
    for text in ("9223372036854775808.0", "-9223372036854777856.0"):
        with pytest.raises(ExpressionError, match="more than 64 bits hold"):
            evaluate(text, M5_LARGE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100m", False), ("1Gi", False), ("71", False), ("-1", False), ("1.5", False),
     ("vcpus", True), ("70+1", True), ("", True), ("1 Gi", True)],
)  # fmt: skip
def test_an_amount_that_is_no_quantity_is_an_expression(text, expected):
    assert is_expression(text) is expected


def test_expressions_are_collected_from_every_allowed_field():
    kubelet = {
        "maxPods": "min(max_pods, 30)",
        "kubeReserved": {"memory": "max_pods*11", "cpu": "100m"},
        "systemReserved": {"cpu": "vcpus*10", "pid": 5},
        "evictionHard": {"memory.available": "vcpus"},
        "podsPerCore": "vcpus",
    }

    assert kubelet_expressions(kubelet) == {
        "kubeReserved.memory": "max_pods*11",
        "maxPods": "min(max_pods, 30)",
        "systemReserved.cpu": "vcpus*10",
    }


@pytest.mark.parametrize(
    "kubelet", [{}, {"maxPods": 10}, {"kubeReserved": {"cpu": "1"}}, {"kubeReserved": "vcpus"}]
)
def test_plain_values_are_no_expressions(kubelet):
    assert kubelet_expressions(kubelet) == {}


def test_trying_every_type_notes_each_mistake_once_with_its_first_type():
    """Negative results too; a mistake does not hide another one."""
    notes = EvaluationErrors()
    small = {**M5_LARGE, "instance_type": "t3.micro", "vcpus": 1}

    results = [
        notes(expression, type_facts)
        for type_facts in (M5_LARGE, small)
        for expression in ("20 / (vcpus - 2) + 20", "vcpus - 2", "vcpus * 30")
    ]

    assert results == [0, 0, 60, 0, 0, 30]
    assert notes.messages == (
        '"20 / (vcpus - 2) + 20" for m5.large: division by zero in CEL expression',
        '"vcpus - 2" for t3.micro: is -1, less than zero',
    )


def test_threads_share_a_compiled_expression():
    expressions = [f"vcpus * {n} + max({n}, 3)" for n in range(4)]

    def results(vcpus):
        return [evaluate(text, {**M5_LARGE, "vcpus": vcpus}) for text in expressions * 20]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(results, range(1, 9)))

    assert found == [[vcpus * n + max(n, 3) for n in range(4)] * 20 for vcpus in range(1, 9)]
