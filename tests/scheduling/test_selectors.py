"""Label selectors over pods."""

import pytest

from karpenter_core.api.records import LabelSelector, LabelSelectorRequirement
from karpenter_core.scheduling.selectors import PodSelector


def _expression(key, operator, *values):
    return LabelSelector(
        match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),)
    )


def test_an_absent_selector_selects_nothing_and_an_empty_one_everything():
    assert PodSelector.read(None) is None
    assert PodSelector.read(LabelSelector()).matches({})


def test_match_label_keys_make_an_absent_selector_one_of_these_labels():
    selector = PodSelector.read(None, {"version": "2"})
    assert selector.matches({"version": "2", "app": "web"})
    assert not selector.matches({"version": "1"})


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ("a", "b"), {"app": "b"}, True),
        ("In", ("a", "b"), {"app": "c"}, False),
        ("In", ("a", "b"), {}, False),
        ("NotIn", ("a",), {"app": "b"}, True),
        ("NotIn", ("a",), {}, True),
        ("NotIn", ("a",), {"app": "a"}, False),
        ("Exists", (), {"app": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"app": "a"}, False),
    ],
)
def test_expressions_match_as_kubernetes_defines(operator, values, labels, expected):
    assert PodSelector.read(_expression("app", operator, *values)).matches(labels) is expected


@pytest.mark.parametrize(("operator", "values"), [("In", ()), ("Exists", ("a",)), ("Gt", ("1",))])
def test_a_selector_that_cannot_be_read_selects_nothing(operator, values):
    assert PodSelector.read(_expression("app", operator, *values)) is None


def test_the_same_selector_spelled_differently_is_equal():
    first = LabelSelector(match_labels={"a": "1", "b": "2"})
    second = LabelSelector(match_labels={"b": "2", "a": "1"})
    assert PodSelector.read(first) == PodSelector.read(second)
    assert PodSelector.read(_expression("a", "In", "x", "y", "x")) == PodSelector.read(
        _expression("a", "In", "y", "x")
    )
