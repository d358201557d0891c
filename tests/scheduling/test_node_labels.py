"""Match expressions select nodes by the labels they have, and by those they lack."""

from __future__ import annotations

import pytest

from karpenter_core.scheduling.requirements import NodeLabels, Requirement, Requirements

EXISTS = Requirement.of("size", "Exists", ())
NOT_HUGE = Requirement.of("size", "NotIn", ("huge",))
ABOVE_TWO = Requirement.of("size", "Gt", ("2",))
NOT_FIVE = Requirement.of("size", "NotIn", ("5",))
SMALL = Requirement.of("size", "In", ("small",))
ABSENT = Requirement.of("size", "DoesNotExist", ())


@pytest.mark.parametrize(
    ("expressions", "labels", "is_selected"),
    [
        ((NOT_HUGE,), {}, True),
        ((EXISTS, NOT_HUGE), {}, False),
        ((EXISTS, NOT_HUGE), {"size": "huge"}, False),
        ((EXISTS, NOT_HUGE), {"size": "small"}, True),
        ((ABOVE_TWO, NOT_FIVE), {}, False),
        ((ABOVE_TWO, NOT_FIVE), {"size": "3"}, True),
        ((ABOVE_TWO, NOT_FIVE), {"size": "5"}, False),
        ((SMALL,), {"size": "small"}, True),
        ((SMALL,), {"other": "small"}, False),
        ((ABSENT,), {}, True),
        ((ABSENT,), {"size": "small"}, False),
    ],
)
def test_a_node_is_selected_by_labels_that_it_has_and_lacks(expressions, labels, is_selected):
    assert NodeLabels.of(expressions).select(labels) is is_selected


def test_expressions_that_exclude_each_other_select_nothing():
    assert NodeLabels.of((SMALL, ABSENT)) is None


@pytest.mark.parametrize(
    ("expressions", "node", "may_get", "may_be"),
    [
        ((EXISTS, NOT_HUGE), (), (), False),
        ((EXISTS, NOT_HUGE), (), ("size",), True),
        ((EXISTS, NOT_HUGE), (SMALL,), (), True),
        ((EXISTS, NOT_HUGE), (Requirement.of("size", "In", ("huge",)),), (), False),
        ((NOT_HUGE,), (), (), True),
        ((SMALL,), (), (), False),
        ((SMALL,), (), ("size",), True),
    ],
)
def test_a_node_to_come_may_be_selected_by_labels_that_it_may_get(
    expressions, node, may_get, may_be
):
    selector = NodeLabels.of(expressions)
    assert selector.may_select(Requirements.all_of(node), allow_undefined=may_get) is may_be
