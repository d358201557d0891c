"""Relaxation steps give up one preference after the other, in upstream's order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import ALIASES, HOSTNAME, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    PodShape,
    Toleration,
    TopologySpread,
    WeightedAffinityTerm,
)
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.compiled.relaxation import (
    MOST_PREFERENCES,
    node_alternatives,
    read_relaxation_steps,
)
from karpenter_core.scheduling.taints import PREFERENCE_TOLERATION
from karpenter_core.testing.builders import node_term, preferred_node_term, toleration


def preferred_pods(weight, key):
    return WeightedAffinityTerm(weight=weight, term=AffinityTerm(topology_key=key))


def spread(key, *, hard=False, skew=1):
    action = "DoNotSchedule" if hard else "ScheduleAnyway"
    return TopologySpread(topology_key=key, max_skew=skew, when_unsatisfiable=action)


HARD, SOFT, SOFTER = spread(ZONE, hard=True), spread(HOSTNAME), spread("rack")
REQUIRED = AffinityTerm(topology_key="required")
SHAPE = PodShape(
    namespace="default",
    node_selector={"os": "linux"},
    required_node_terms=(node_term(("size", "In", "s")), node_term(("size", "In", "m"))),
    preferred_node_terms=(
        preferred_node_term(1, ("disk", "In", "ssd")),
        preferred_node_term(9, ("disk", "Nearly", "ssd")),
        preferred_node_term(5, ("gpu", "In", "a")),
    ),
    tolerations=(toleration("own"),),
    pod_affinity=(REQUIRED,),
    preferred_pod_affinity=(preferred_pods(1, "light"), preferred_pods(2, "heavy")),
    pod_anti_affinity=(REQUIRED,),
    preferred_pod_anti_affinity=(preferred_pods(3, "light"), preferred_pods(8, "heavy")),
    topology_spread=(SOFT, HARD, SOFTER),
)


def labels(requirements):
    return {each.key: "|".join(sorted(each.values)) for each in requirements.values()}


def steps_of(shape, *, respect=True, softens=False):
    return read_relaxation_steps(
        shape, aliases=ALIASES, respect_preferences=respect, softens_taints=softens
    )


def described(step):
    keys = [
        tuple(term.topology_key for term in each) for each in (step.affinity, step.anti_affinity)
    ]
    softened = PREFERENCE_TOLERATION in step.tolerations
    return labels(step.labels.requirements), *keys, step.spreads, softened


S, M = {"os": "linux", "size": "s"}, {"os": "linux", "size": "m"}
ONE, TWO, ALL = ("required",), ("required", "light"), ("required", "heavy", "light")
EVERY_STEP = [
    ({**S, "gpu": "a"}, ALL, ALL, (SOFT, HARD, SOFTER), False),
    ({**M, "gpu": "a"}, ALL, ALL, (SOFT, HARD, SOFTER), False),
    ({**M, "gpu": "a"}, TWO, ALL, (SOFT, HARD, SOFTER), False),
    ({**M, "gpu": "a"}, ONE, ALL, (SOFT, HARD, SOFTER), False),
    ({**M, "gpu": "a"}, ONE, TWO, (SOFT, HARD, SOFTER), False),
    ({**M, "gpu": "a"}, ONE, ONE, (SOFT, HARD, SOFTER), False),
    ({**M, "disk": "ssd"}, ONE, ONE, (SOFT, HARD, SOFTER), False),
    (M, ONE, ONE, (SOFT, HARD, SOFTER), False),
    (M, ONE, ONE, (SOFTER, HARD), False),
    (M, ONE, ONE, (HARD,), False),
    (M, ONE, ONE, (HARD,), True),
]


@pytest.mark.parametrize("softens", [False, True])
def test_each_relaxation_step_drops_one_preference_in_the_order_of_karpenter(softens):
    """Heaviest first; one that cannot be read is given up at once, soft taints last."""
    expected = EVERY_STEP if softens else EVERY_STEP[:-1]
    assert [described(step) for step in steps_of(SHAPE, softens=softens)] == expected


def test_without_preferences_only_alternative_terms_are_given_up():
    assert [described(step) for step in steps_of(SHAPE, respect=False)] == [
        (S, ONE, ONE, (HARD,), False),
        (M, ONE, ONE, (HARD,), False),
    ]


def test_the_strict_requirements_of_every_step_are_without_preferences():
    assert [labels(step.strict) for step in steps_of(SHAPE)] == [S, *[M] * 9]


def test_a_pod_keeps_its_own_tolerations_and_tolerates_soft_taints_only_once():
    (kept, softened) = steps_of(
        PodShape(namespace="a", tolerations=SHAPE.tolerations), softens=True
    )
    assert kept.tolerations == SHAPE.tolerations
    assert softened.tolerations == (*SHAPE.tolerations, PREFERENCE_TOLERATION)
    tolerant = PodShape(namespace="a", tolerations=(PREFERENCE_TOLERATION,))
    assert [step.tolerations for step in steps_of(tolerant, softens=True)] == [
        (Toleration(operator="Exists", effect="PreferNoSchedule"),)
    ]


def test_an_unsatisfiable_term_or_preference_is_left_out():
    """Two values that exclude each other are no step, and not "the label must not exist"."""
    shape = PodShape(
        namespace="a",
        node_selector={"size": "s"},
        required_node_terms=(node_term(("size", "In", "m")), node_term(("os", "In", "linux"))),
        preferred_node_terms=(preferred_node_term(1, ("os", "In", "windows")),),
    )
    assert [labels(step.labels.requirements) for step in steps_of(shape)] == [
        {"size": "s", "os": "linux"}
    ]


def test_terms_without_expressions_are_no_alternative():
    shape = PodShape(namespace="a", required_node_terms=(node_term(), node_term(("a", "In", "b"))))
    assert [labels(step.labels.requirements) for step in steps_of(shape)] == [{"a": "b"}]


def test_constraints_that_exclude_each_other_are_an_error():
    shape = PodShape(
        namespace="a", node_selector={"a": "b"}, required_node_terms=(node_term(("a", "In", "c")),)
    )
    with pytest.raises(BadInputError, match="exclude each other"):
        steps_of(shape)


def test_a_required_expression_that_cannot_be_read_is_an_error():
    shape = PodShape(namespace="a", required_node_terms=(node_term(("a", "Nearly", "b")),))
    with pytest.raises(BadInputError, match='unknown operator "Nearly"'):
        steps_of(shape)


@pytest.mark.parametrize(
    ("expressions", "present"),
    [
        ((("a", "Exists"), ("a", "NotIn", "x")), {"a"}),
        ((("a", "Gt", "1"), ("a", "NotIn", "3")), {"a"}),
        ((("a", "NotIn", "3"), ("a", "Lt", "9")), {"a"}),
        ((("a", "Gt", "1"), ("a", "Lt", "9")), set()),
        ((("a", "Lt", "9"),), set()),
        ((("a", "Exists"),), set()),
        ((("a", "NotIn", "x"),), set()),
        ((("a", "In", "x"),), set()),
        ((("a", "DoesNotExist"),), set()),
    ],
)
@pytest.mark.parametrize("is_required", [True, False])
def test_a_label_that_must_exist_and_not_have_a_value_is_present(expressions, present, is_required):
    term = node_term(*expressions)
    wanted = {"required_node_terms": (term,)}
    if not is_required:
        wanted = {"preferred_node_terms": (preferred_node_term(1, *expressions),)}
    assert steps_of(PodShape(namespace="a", **wanted))[0].labels.present == present


def test_alternatives_are_the_distinct_labels_of_terms():
    twice = PodShape(
        namespace="a",
        required_node_terms=(*SHAPE.required_node_terms, SHAPE.required_node_terms[0]),
        preferred_node_terms=SHAPE.preferred_node_terms,
    )
    found = node_alternatives(twice, aliases=ALIASES)
    assert [labels(each.requirements) for each in found] == [{"size": "s"}, {"size": "m"}]


@given(
    terms=st.integers(0, 3),
    affinity=st.lists(st.integers(1, 100), max_size=3),
    anti_affinity=st.lists(st.integers(1, 100), max_size=3),
    nodes=st.lists(st.integers(1, 100), max_size=3),
    spreads=st.lists(st.booleans(), max_size=4),
    softens=st.booleans(),
)
def test_there_is_a_step_more_than_there_are_preferences(
    terms, affinity, anti_affinity, nodes, spreads, softens
):
    """Requirements stay in every step, and the last one has nothing else."""
    shape = PodShape(
        namespace="a",
        required_node_terms=tuple(node_term(("size", "In", str(n))) for n in range(terms)),
        preferred_node_terms=tuple(
            preferred_node_term(weight, (f"k{n}", "In", "v")) for n, weight in enumerate(nodes)
        ),
        pod_affinity=(REQUIRED,),
        preferred_pod_affinity=tuple(preferred_pods(weight, "a") for weight in affinity),
        preferred_pod_anti_affinity=tuple(preferred_pods(weight, "b") for weight in anti_affinity),
        topology_spread=tuple(spread(ZONE, hard=hard, skew=n) for n, hard in enumerate(spreads, 1)),
    )
    steps = steps_of(shape, softens=softens)
    hard = {each for each in shape.topology_spread if each.when_unsatisfiable == "DoNotSchedule"}
    soft = len(spreads) - len(hard)
    given_up = max(terms - 1, 0) + len(affinity) + len(anti_affinity) + len(nodes) + soft + softens
    assert len(steps) == 1 + given_up
    assert all(REQUIRED in step.affinity and hard <= set(step.spreads) for step in steps)
    last = steps[-1]
    assert (last.affinity, last.anti_affinity, set(last.spreads)) == ((REQUIRED,), (), hard)
    assert last.labels.requirements == last.strict


MANY = 2000
HUGE_SHAPES = {
    "pod affinity": {
        "preferred_pod_affinity": [preferred_pods(1 + n % 100, f"rack-{n}") for n in range(MANY)]
    },
    "pod anti-affinity": {
        "preferred_pod_anti_affinity": [
            preferred_pods(1 + n % 100, f"rack-{n}") for n in range(MANY)
        ]
    },
    "node affinity": {
        "preferred_node_terms": [
            preferred_node_term(1 + n % 100, (f"disk-{n}", "In", "ssd")) for n in range(MANY)
        ]
    },
    "spread": {"topology_spread": [HARD, *(spread(f"rack-{n}") for n in range(MANY))]},
}


@pytest.mark.parametrize("kind", HUGE_SHAPES)
def test_thousands_of_preferences_take_bounded_memory(kind):
    """Anyone may create such a pod: each step that gives up one would hold all the others."""
    shape = PodShape(
        namespace="default", **{name: tuple(each) for name, each in HUGE_SHAPES[kind].items()}
    )

    steps = steps_of(shape)

    held = [(*each.spreads, *each.affinity, *each.anti_affinity) for each in steps]
    assert sum(map(len, held)) + len(steps) < MANY
    assert held[-1] == ((HARD,) if kind == "spread" else ())


def test_of_too_many_preferences_the_heaviest_are_kept():
    shape = PodShape(
        namespace="default",
        preferred_pod_affinity=tuple(
            preferred_pods(weight, f"rack-{weight}") for weight in range(1, 101)
        ),
    )

    kept = {each.topology_key for each in steps_of(shape)[0].affinity}

    assert kept == {f"rack-{weight}" for weight in range(100, 100 - MOST_PREFERENCES, -1)}


def test_hard_constraints_are_never_given_up_for_their_number():
    hard = tuple(spread(f"rack-{n}", hard=True) for n in range(MANY))

    (step,) = steps_of(PodShape(namespace="default", topology_spread=hard))

    assert step.spreads == hard
