"""The algebra of requirements, against the reference's pairwise tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, WELL_KNOWN, ZONE
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.requirements import Requirement, Requirements, parse_integer
from tests.properties import with_examples

MAX_INT64 = 2**63 - 1


def req(operator, *values, min_values=None, key="key"):
    return Requirement.of(key, operator, values, min_values=min_values)


NAMED = {
    "∃": req("Exists"),
    "∄": req("DoesNotExist"),
    "A": req("In", "A"),
    "B": req("In", "B"),
    "AB": req("In", "A", "B"),
    "¬A": req("NotIn", "A"),
    "1": req("In", "1"),
    "9": req("In", "9"),
    "19": req("In", "1", "9"),
    "¬12": req("NotIn", "1", "2"),
    ">1": req("Gt", "1"),
    ">9": req("Gt", "9"),
    "<1": req("Lt", "1"),
    "<9": req("Lt", "9"),
    "¬12A": req("NotIn", "1", "2", "A"),
    "¬2≥2": Requirement(key="key", complement=True, values=frozenset({"2"}), gte=2),
    "¬12≤8": Requirement(key="key", complement=True, values=frozenset({"1", "2"}), lte=8),
    "∃≥2≤8": Requirement(key="key", complement=True, gte=2, lte=8),
}
COLUMNS = ("∃", "∄", "A", "B", "AB", "¬A", "1", "9", "19", "¬12", ">1", ">9", "<1", "<9")
INTERSECTIONS = {
    "∃": "∃ ∄ A B AB ¬A 1 9 19 ¬12 >1 >9 <1 <9",
    "∄": "∄ ∄ ∄ ∄ ∄ ∄ ∄ ∄ ∄ ∄ ∄ ∄ ∄ ∄",
    "A": "A ∄ A ∄ A ∄ ∄ ∄ ∄ A ∄ ∄ ∄ ∄",
    "B": "B ∄ ∄ B B B ∄ ∄ ∄ B ∄ ∄ ∄ ∄",
    "AB": "AB ∄ A B AB B ∄ ∄ ∄ AB ∄ ∄ ∄ ∄",
    "¬A": "¬A ∄ ∄ B B ¬A 1 9 19 ¬12A >1 >9 <1 <9",
    "1": "1 ∄ ∄ ∄ ∄ 1 1 ∄ 1 ∄ ∄ ∄ ∄ 1",
    "9": "9 ∄ ∄ ∄ ∄ 9 ∄ 9 9 9 9 ∄ ∄ ∄",
    "19": "19 ∄ ∄ ∄ ∄ 19 1 9 19 9 9 ∄ ∄ 1",
    "¬12": "¬12 ∄ A B AB ¬12A ∄ 9 9 ¬12 ¬2≥2 >9 <1 ¬12≤8",
    ">1": ">1 ∄ ∄ ∄ ∄ >1 ∄ 9 9 ¬2≥2 >1 >9 ∄ ∃≥2≤8",
    ">9": ">9 ∄ ∄ ∄ ∄ >9 ∄ ∄ ∄ >9 >9 >9 ∄ ∄",
    "<1": "<1 ∄ ∄ ∄ ∄ <1 ∄ ∄ ∄ <1 ∄ ∄ <1 <1",
    "<9": "<9 ∄ ∄ ∄ ∄ <9 1 ∄ 1 ¬12≤8 ∃≥2≤8 ∄ <1 <9",
}
COMPATIBILITY = {
    "∃": "y · y y y y y y y y y y y y",
    "∄": "· y · · · y · · · y · · · ·",
    "A": "y · y · y · · · · y · · · ·",
    "B": "y · · y y y · · · y · · · ·",
    "AB": "y · y y y y · · · y · · · ·",
    "¬A": "y y · y y y y y y y y y y y",
    "1": "y · · · · y y · y · · · · y",
    "9": "y · · · · y · y y y y · · ·",
    "19": "y · · · · y y y y y y · · y",
    "¬12": "y y y y y y · y y y y y y y",
    ">1": "y · · · · y · y y y y y · y",
    ">9": "y · · · · y · · · y y y · ·",
    "<1": "y · · · · y · · · y · · y y",
    "<9": "y · · · · y y · y y y · y y",
}
PAIRS = [
    (row, column, meeting, compatible == "y")
    for row in COLUMNS
    for column, meeting, compatible in zip(
        COLUMNS, INTERSECTIONS[row].split(), COMPATIBILITY[row].split(), strict=True
    )
]


@pytest.mark.parametrize(("row", "column", "meeting", "compatible"), PAIRS)
def test_every_pair_meets_as_the_reference_says(row, column, meeting, compatible):
    """All 196 pairs: cases 2-12, 27, 28 and the tables of the reference's suite."""
    first, second = NAMED[row], NAMED[column]

    assert first.intersection(second) == NAMED[meeting]
    assert first.has_intersection(second) == (meeting != "∄")
    assert first.admits(second) == compatible
    assert Requirements((first,)).compatible(Requirements((second,))) == compatible


def test_min_values_survive_and_the_larger_one_wins():
    """Case 13, also when nothing is left."""
    assert req("In", "1", "2", min_values=1).intersection(req("NotIn", "3")).min_values == 1
    assert req("Exists", min_values=1).intersection(req("In", "1", min_values=2)).min_values == 2
    nothing = req("Gt", "9", min_values=3).intersection(req("Lt", "1", min_values=2))
    assert (nothing.operator, nothing.min_values) == ("DoesNotExist", 3)


@pytest.mark.parametrize(
    ("requirement", "has", "has_not"),
    [
        (req("Exists"), "A 1 9", ""),
        (req("In", "A"), "A", "B 1"),
        (req("In", "A", "B"), "A B", "1"),
        (req("NotIn", "1", "2"), "A 9", "1 2"),
        (req("Gt", "1"), "9 2", "1 A"),
        (req("Gt", "9"), "10", "9 A"),
        (req("Lt", "9"), "1", "9 A"),
        (req("Lt", "1"), "0 -5", "1 A"),
        (req("Gte", "2"), "2 3 100", "1 0 A"),
        (req("Lte", "8"), "8 7 0", "9 10"),
        (req("Gte", "0"), "0", "-1"),
        (req("Lte", "0"), "0", "1"),
        (req("DoesNotExist"), "", "A 1"),
    ],
)
def test_has_follows_values_and_bounds(requirement, has, has_not):
    """Cases 14, 15, 22."""
    assert all(requirement.has(value) for value in has.split())
    assert not any(requirement.has(value) for value in has_not.split())


@pytest.mark.parametrize(
    ("requirement", "operator", "text"),
    [
        (req("Exists"), "Exists", "key Exists"),
        (req("Gt", "1"), "Exists", "key Exists >=2"),
        (req("Lt", "1"), "Exists", "key Exists <=0"),
        (NAMED["∃≥2≤8"], "Exists", "key Exists >=2 <=8"),
        (req("NotIn", "2", "1"), "NotIn", "key NotIn [1 2]"),
        (req("In", "9", "1"), "In", "key In [1 9]"),
        (req("In"), "DoesNotExist", "key DoesNotExist"),
        (req("DoesNotExist"), "DoesNotExist", "key DoesNotExist"),
        (req("Gt", str(MAX_INT64)), "DoesNotExist", "key DoesNotExist"),
        (req("In", *"abcdefg"), "In", "key In [a b c d e and 2 others]"),
        (req("In", "a", min_values=1), "In", "key In [a] minValues 1"),
    ],
)
def test_operator_and_text(requirement, operator, text):
    """Cases 16, 17, 19, 24."""
    assert requirement.operator == operator
    assert str(requirement) == text


@pytest.mark.parametrize(
    ("requirement", "value"),
    [
        (req("In", "b", "a"), "a"),
        (req("DoesNotExist"), ""),
        (req("NotIn", "A"), "0"),
        (req("NotIn", "0", "1"), "2"),
        (req("Gte", "5"), "5"),
        (req("Lte", "10"), "0"),
        (req("Lte", "-3"), "-3"),
        (req("Lte", "0").intersection(req("NotIn", "0")), "-1"),
    ],
)
def test_any_value_is_always_the_same_allowed_one(requirement, value):
    """Case 18."""
    assert requirement.any_value() == value


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (req("Gt", "4"), req("Gte", "5"), "key Exists >=5"),
        (req("Gt", "5"), req("Gte", "5"), "key Exists >=6"),
        (req("Gt", "3"), req("Gte", "6"), "key Exists >=6"),
        (req("Lt", "5"), req("Lte", "5"), "key Exists <=4"),
        (req("Lt", "9"), req("Lte", "5"), "key Exists <=5"),
    ],
)
def test_strict_and_inclusive_bounds_meet(first, second, text):
    """Case 23."""
    assert str(first.intersection(second)) == text


@pytest.mark.parametrize(
    ("requirement", "entries"),
    [
        (req("Gt", "1", min_values=2), [("Gte", ("2",), 2)]),
        (req("Lt", "9"), [("Lte", ("8",), None)]),
        (NAMED["∃≥2≤8"], [("Gte", ("2",), None), ("Lte", ("8",), None)]),
        (NAMED["¬2≥2"], [("Gte", ("2",), None), ("NotIn", ("2",), None)]),
        (req("In", "b", "a"), [("In", ("a", "b"), None)]),
        (req("NotIn", "a"), [("NotIn", ("a",), None)]),
        (req("Exists"), [("Exists", (), None)]),
        (req("DoesNotExist"), [("DoesNotExist", (), None)]),
    ],
)
def test_requirements_are_written_as_api_entries(requirement, entries):
    """Cases 20, 21; the excluded values beside bounds are kept (decision Q11)."""
    written = requirement.to_specs()
    assert [(e.operator, e.values, e.min_values) for e in written] == entries
    assert Requirements.from_specs(written) == Requirements((requirement,))


@pytest.mark.parametrize(
    ("alias", "key"),
    [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ],
)
def test_deprecated_labels_become_the_canonical_ones(alias, key):
    """Case 1."""
    assert list(Requirements.from_labels({alias: "x"})) == [key]


def test_well_known_labels_may_be_undefined_for_nodes_yet_to_be_made():
    """Cases 25, 26."""
    nothing = Requirements()
    asked = [
        Requirements((req(operator, *values, key=ZONE),))
        for operator, values in (
            ("In", "a"), ("Exists", ""), ("Gt", "1"), ("Lt", "1"), ("NotIn", "a"),
            ("DoesNotExist", ""),
        )
    ]  # fmt: skip
    assert all(nothing.compatible(other, allow_undefined=WELL_KNOWN) for other in asked)
    assert [nothing.compatible(other) for other in asked] == [False] * 4 + [True] * 2
    assert nothing.compatible(nothing)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("zone", "topology.kubernetes.io/zone"),
        ("region", "topology.kubernetes.io/region"),
        ("nodepool", "karpenter.sh/nodepool"),
        ("instance-type", "node.kubernetes.io/instance-type"),
        ("arch", "kubernetes.io/arch"),
        ("capacity-type", "karpenter.sh/capacity-type"),
        ("topology.kubernetesio/zone", "topology.kubernetes.io/zone"),
        ("node.io/zone", "topology.kubernetes.io/zone"),
        ("topology.kubernetes.io/regio", "topology.kubernetes.io/region"),
        ("node.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("karpenter/nodepool", "karpenter.sh/nodepool"),
    ],
)
def test_a_mistyped_label_gets_a_hint(typed, meant):
    """Cases 29, 30."""
    refused = Requirements().incompatibility(
        Requirements((req("In", "x", key=typed),)), allow_undefined=WELL_KNOWN
    )
    assert str(refused) == f'label "{typed}" does not have known values (typo of "{meant}"?)'


def test_an_unknown_label_gets_no_hint():
    """Case 30."""
    refused = Requirements().incompatibility(Requirements((req("In", "x", key="deployment"),)))
    assert str(refused) == 'label "deployment" does not have known values'


def test_a_conflict_carries_data_and_says_both_sides():
    """The refusal of two requirements names what came and what was there."""
    refused = Requirements((req("In", "a", key=ZONE),)).incompatibility(
        Requirements((req("In", "b", key=ZONE),))
    )
    assert refused is not None
    assert refused.failures[0].key == ZONE
    assert str(refused) == f"key {ZONE}, {ZONE} In [b] not in {ZONE} In [a]"


def test_the_text_of_a_set_is_sorted_and_hides_the_hostname():
    """Case 31."""
    members = [req("In", "x", key=key) for key in (ZONE, HOSTNAME, "a", CAPACITY_TYPE)]
    expected = f"a In [x], {CAPACITY_TYPE} In [x], {ZONE} In [x]"
    assert str(Requirements(members)) == expected
    assert str(Requirements(reversed(members))) == expected


def test_exists_does_not_widen_a_value():
    """Case 32."""
    both = Requirements((req("In", "nowhere"), req("Exists"), req("Exists")))
    assert both.get("key") == req("In", "nowhere")


@pytest.mark.parametrize(
    ("operator", "values", "said"),
    [
        ("Gt", ("x",), 'requirement on "key": Gt needs one integer'),
        ("Lte", ("1", "2"), 'requirement on "key": Lte needs one integer'),
        ("Near", ("1",), 'unknown operator "Near"'),
    ],
)
def test_an_unreadable_requirement_is_refused_by_name(operator, values, said):
    """A bad expression names key, operator and values."""
    with pytest.raises(BadInputError, match=said):
        req(operator, *values)


@pytest.mark.parametrize(
    ("own", "other", "is_guaranteed"),
    [
        (("Gt", "5"), ("Gt", "3"), True),
        (("Gt", "3"), ("Gt", "3"), True),
        (("Gt", "2"), ("Gt", "3"), False),
        (("Exists",), ("Gt", "3"), False),
        (("Lt", "2"), ("Lt", "3"), True),
        (("Lt", "3"), ("Lt", "3"), True),
        (("Lt", "4"), ("Lt", "3"), False),
        (("Exists",), ("Lt", "3"), False),
    ],
)
def test_a_bound_guarantees_every_wider_one(own, other, is_guaranteed):
    assert req(*own).guarantees(req(*other)) is is_guaranteed


def test_a_claim_guarantees_only_labels_that_all_its_types_have():
    """A launching node may still become any type of its claim."""
    claim = Requirements((req("In", "a", "b", key=ZONE),))
    undecided = WELL_KNOWN
    assert claim.guarantees(Requirements((req("In", "a", "b", "c", key=ZONE),)))
    assert claim.guarantees(Requirements((req("NotIn", "c", key=ZONE),)))
    assert not claim.guarantees(Requirements((req("In", "a", key=ZONE),)))
    assert claim.guarantees(Requirements((req("DoesNotExist", key="x"),)), undecided=undecided)
    assert not claim.guarantees(
        Requirements((req("NotIn", "spot", key=CAPACITY_TYPE),)), undecided=undecided
    )


VALUES = st.sampled_from(["A", "B", "0", "1", "2", "9", "-4"])
REQUIREMENTS = st.one_of(
    st.builds(
        lambda operator, values: req(operator, *values),
        st.sampled_from(["In", "NotIn"]),
        st.sets(VALUES, max_size=3),
    ),
    st.sampled_from([req("Exists"), req("DoesNotExist")]),
    st.builds(
        lambda operator, bound: req(operator, str(bound)),
        st.sampled_from(["Gt", "Lt", "Gte", "Lte"]),
        st.integers(-5, 10),
    ),
)


@given(REQUIREMENTS, REQUIREMENTS, VALUES)
@with_examples(100)
def test_an_intersection_has_exactly_the_common_values(first, second, value):
    """For any two requirements and any value; and the order does not matter."""
    both = first.intersection(second)
    assert both.has(value) == (first.has(value) and second.has(value))
    assert both == second.intersection(first)
    if both.operator == "In":
        assert first.has_intersection(second)


@given(REQUIREMENTS, REQUIREMENTS, VALUES)
@with_examples(100)
def test_a_guarantee_holds_for_every_value(first, second, value):
    """A guaranteed value is never refused by the other requirement."""
    if first.guarantees(second) and first.has(value):
        assert second.has(value)


@given(REQUIREMENTS)
@with_examples(100)
def test_any_value_is_allowed_or_empty(requirement):
    """The chosen value is one of the allowed ones."""
    value = requirement.any_value()
    assert requirement.has(value) if value else requirement.operator == "DoesNotExist"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("-0", 0), ("+7", 7), ("-12", -12), ("0" * 5_000 + "7", 7), ("0" * 5_000, 0),
        (str(MAX_INT64), MAX_INT64), (str(MAX_INT64 + 1), None), ("9" * 5_000, None),
        ("", None), ("-", None), ("1.0", None), (" 1", None), ("1_0", None), ("\u0661", None),
    ],
)  # fmt: skip
def test_integers_have_64_bits_however_long_their_texts_are(text, number):
    """Python converts no text of thousands of digits; any pod may have one."""
    assert parse_integer(text) == number
