"""Admission by schema and rules: the table of cases, and the wording of refusals."""

from __future__ import annotations

import copy
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.cel import CELError, CompiledRule, compile_rule
from karpenter_core.api.crd import core_models, render_crd
from karpenter_core.api.field_errors import describe_errors
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.schema import SchemaValidator
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.api.admission_cases import (
    CASES,
    DEFAULT_CASES,
    NODE_CLASS_REF,
    UPDATE_CASES,
    node_claim,
    node_pool,
)
from tests.properties import with_examples

MODELS = {model.resource.kind: model for model in (*core_models(), KWOKNodeClass)}


@cache
def validator(kind: str) -> SchemaValidator:
    version = render_crd(MODELS[kind])["spec"]["versions"][0]
    return SchemaValidator(version["schema"]["openAPIV3Schema"])


def refusals(kind: str, obj: dict, old: dict | None = None) -> list[str]:
    checker = validator(kind)
    stored = checker.default(old) if old is not None else None
    return [str(error) for error in checker.validate(checker.default(obj), stored)]


def fields(kind: str, obj: dict, old: dict | None = None) -> set[str]:
    return {text.split(": ")[0] for text in refusals(kind, obj, old)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.name}")
def test_object_is_judged_at_its_field(case):
    """Acceptance cases A 2-11 and 31.C 56-77."""
    error_fields = fields(case.kind, case.object)

    assert error_fields == (set() if case.field is None else {case.field})


@pytest.mark.parametrize("case", [c for c in CASES if c.field is None], ids=lambda c: c.name)
def test_an_accepted_object_is_read_by_its_model(case):
    """No admitted object may break this process."""
    stored = validator(case.kind).default(case.object)

    read = MODELS[case.kind].model_validate(stored)

    written = read.model_dump(mode="json", exclude_unset=True)
    assert written["spec"] == stored["spec"]


@pytest.mark.parametrize("case", UPDATE_CASES, ids=lambda case: case.name)
def test_update_is_judged_at_its_field(case):
    """Acceptance cases A 11 and 31.C 74, 78."""
    error_fields = fields(case.kind, case.new, case.old)

    assert error_fields == (set() if case.field is None else {case.field})


@pytest.mark.parametrize("case", DEFAULT_CASES, ids=lambda case: case.name)
def test_defaults_are_filled_in(case):
    """Acceptance cases A 1 and 31.C 58."""
    assert validator(case.kind).default(case.object)["spec"] == case.spec


@pytest.mark.parametrize("kind", ["NodePool", "NodeClaim"])
def test_the_models_read_an_absent_field_as_the_default_of_the_api(kind):
    bare = node_pool() if kind == "NodePool" else node_claim()

    defaulted = validator(kind).default(bare)

    assert MODELS[kind].model_validate(bare) == MODELS[kind].model_validate(defaulted)


def test_kwok_node_class_is_ready_at_creation():
    stored = validator("KWOKNodeClass").default(
        {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {}}
    )

    assert stored["status"] == {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": "2024-01-01T01:01:01Z",
            }
        ]
    }
    assert refusals("KWOKNodeClass", stored) == []
    assert KWOKNodeClass.model_validate(stored).status == KWOKNodeClass().status


DOMAIN = 'label domain "karpenter.sh" is restricted'


@pytest.mark.parametrize(
    ("obj", "texts"),
    [
        (
            node_pool(weight=101),
            [
                (
                    "spec.weight: Invalid value: 101: "
                    "spec.weight in body should be less than or equal to 100"
                )
            ],
        ),
        (
            node_pool(weight="x"),
            [
                (
                    'spec.weight: Invalid value: "string": '
                    'spec.weight in body must be of type integer: "string"'
                )
            ],
        ),
        (
            node_pool(disruption={"consolidationPolicy": "foo"}),
            [
                (
                    'spec.disruption.consolidationPolicy: Unsupported value: "foo": supported values: '
                    '"WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"'
                )
            ],
        ),
        (
            node_pool(disruption={"consolidateAfter": "1hr"}),
            [
                (
                    'spec.disruption.consolidateAfter: Invalid value: "1hr": '
                    "spec.disruption.consolidateAfter in body should match "
                    "'^(([0-9]+(s|m|h))+|Never)$'"
                )
            ],
        ),
        (
            node_pool({"requirements": [{"key": "karpenter.sh/x", "operator": "Exists"}]}),
            [f'spec.template.spec.requirements[0].key: Invalid value: "karpenter.sh/x": {DOMAIN}'],
        ),
        (
            node_pool({"requirements": [{"key": "a", "operator": "Gt", "values": ["-1"]}]}),
            [
                (
                    "spec.template.spec.requirements: Invalid value: requirements operator 'Gt', 'Lt', "
                    "'Gte', or 'Lte' must have a single positive integer value"
                )
            ],
        ),
        (
            node_pool({"requirements": [{"key": "a", "operator": "In"}]}),
            [
                (
                    'spec.template.spec.requirements: Invalid value: "array": no such key: values '
                    "evaluating rule: requirements with operator 'In' must have a value defined"
                )
            ],
        ),
        (
            node_pool({"requirements": [{"key": "a" * 317, "operator": "Exists"}]}),
            ["spec.template.spec.requirements[0].key: Too long: may not be more than 316 bytes"],
        ),
        (
            node_pool({"nodeClassRef": NODE_CLASS_REF | {"name": ""}}),
            ['spec.template.spec.nodeClassRef.name: Invalid value: "": name may not be empty'],
        ),
        (
            node_pool(disruption={"budgets": [{"nodes": "1", "reasons": ["Empty", "Empty"]}]}),
            ['spec.disruption.budgets[0].reasons[1]: Duplicate value: "Empty"'],
        ),
        (
            node_pool(disruption={"budgets": [{"nodes": "1"}] * 51}),
            ["spec.disruption.budgets: Too many: 51: must have at most 50 items"],
        ),
        (
            node_pool(limits={"cpu": True}),
            [
                (
                    'spec.limits.cpu: Invalid value: "boolean": '
                    'spec.limits.cpu in body must be of type integer,string: "boolean"'
                )
            ],
        ),
        (
            node_pool(replicas=1, limits={"cpu": 1}),
            ["spec: Invalid value: only 'limits.nodes' is supported on static NodePools"],
        ),
    ],
)
def test_refusals_are_worded_like_the_api_servers(obj, texts):
    assert refusals("NodePool", obj) == texts


def test_several_errors_are_listed_together():
    obj = node_pool(weight=0, replicas=-1)
    errors = validator("NodePool").validate(validator("NodePool").default(obj))

    assert describe_errors(errors[:2]) == (
        "[spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1, "
        "spec.replicas: Invalid value: -1: "
        "spec.replicas in body should be greater than or equal to 0]"
    )
    assert describe_errors(errors[:1]).startswith("spec.weight: Invalid")


def test_rules_are_not_run_on_an_unsound_object():
    obj = node_pool({"requirements": [{"key": "karpenter.sh/x", "operator": "?"}]})

    assert fields("NodePool", obj) == {"spec.template.spec.requirements[0].operator"}


def test_unchanged_values_are_not_judged_again():
    """An object stored under an older, laxer schema can still be updated elsewhere."""
    old = node_pool({"requirements": [{"key": "karpenter.sh/x", "operator": "Exists"}]}, weight=999)
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}

    assert fields("NodePool", old) == {"spec.weight", "spec.template.spec.requirements[0].key"}
    assert fields("NodePool", new, old) == set()

    new["spec"]["weight"] = 1000
    assert fields("NodePool", new, old) == {"spec.weight"}


def test_conditions_are_a_map_by_type():
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    obj = node_pool() | {"status": {"conditions": [condition, condition | {"status": "False"}]}}

    assert refusals("NodePool", obj) == ['status.conditions[1]: Duplicate value: {"type":"Ready"}']


@pytest.mark.parametrize(("kind", "expected"), [("NodePool", 2), ("NodeClaim", 0)])
def test_only_claims_may_have_conditions_without_a_reason(kind, expected):
    condition = {"type": "X", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    obj = (node_pool() if kind == "NodePool" else node_claim()) | {
        "status": {"conditions": [condition]}
    }

    assert len(refusals(kind, obj)) == expected


def test_defaulting_does_not_change_the_argument_and_the_metadata():
    obj = node_pool()
    obj["metadata"]["anything"] = {"goes": None}
    before = copy.deepcopy(obj)

    defaulted = validator("NodePool").default(obj)
    defaulted["spec"]["disruption"]["budgets"].append({"nodes": "1"})

    assert obj == before
    assert defaulted["metadata"] == before["metadata"]
    assert validator("NodePool").default(obj)["spec"]["disruption"]["budgets"] == [{"nodes": "10%"}]


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["template", "spec", "requirements", "disruption", "budgets", "limits"])
        | st.text(max_size=4),
        inner,
        max_size=3,
    ),
    max_leaves=12,
))  # fmt: skip
@with_examples(100)
def test_any_json_is_judged_without_a_crash(spec):
    obj = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {}, "spec": spec}
    checker = validator("NodePool")

    defaulted = checker.default(obj)

    assert checker.validate(defaulted), "nothing random is a NodePool"
    assert checker.default(defaulted) == defaulted


EXTENSIONS = [
    ('self.find("[0-9]+") == "12"', "ab12cd3", True),
    ('self.find("x") == ""', "ab12cd3", True),
    ('self.findAll("[0-9]+") == ["12", "3"]', "ab12cd3", True),
    ('self.findAll("[0-9]+", 1) == ["12"]', "ab12cd3", True),
    ('self.split(",").size() == 2', "a,b", True),
    ('self.split("/")[0].endsWith("karpenter.sh")', "sub.karpenter.sh/x", True),
    ('self.lowerAscii() == "abc"', "AbC", True),
    ('self.replace("a", "b") == "bb"', "ab", True),
    ('self.trim() == "a"', " a ", True),
    ('self.matches("^a+$")', "aaa", True),
    ("self.exists(x, x == 2)", [1, 2], True),
]


@pytest.mark.parametrize(("rule", "value", "expected"), EXTENSIONS)
def test_kubernetes_extensions_of_cel(rule, value, expected):
    assert compile_rule(rule).evaluate(value) is expected


def test_a_rule_that_fails_says_why():
    with pytest.raises(CELError, match="no such key: colour"):
        compile_rule("self.colour == 'blue'").evaluate({})
    with pytest.raises(CELError, match="invalid rule"):
        compile_rule("self ==")


def test_transition_rules_are_recognised():
    assert compile_rule("self == oldSelf").is_transition
    assert not compile_rule("self.myoldSelfish == 1").is_transition


def test_models_remain_the_source_of_the_api_version():
    assert NodePool.resource.api_version == NodeClaim.resource.api_version == "karpenter.sh/v1"


def test_a_rule_is_evaluated_once_for_values_that_are_alike(monkeypatch):
    """And for others anew, even such as are equal in Python; a transition for each old value."""
    asked = []
    evaluate = CompiledRule.evaluate

    def counted(self, value, old=None):
        asked.append((value, old))
        return evaluate(self, value, old)

    monkeypatch.setattr(CompiledRule, "evaluate", counted)
    rule = {"rule": "type(self) == type(7331)", "message": "no integer"}
    grows = {"rule": "type(self) == double || self >= oldSelf", "message": "it shrinks"}
    judge = SchemaValidator(
        {
            "type": "object",
            "properties": {"n": {"type": "number", "x-kubernetes-validations": [rule, grows]}},
        }
    )
    for _ in range(2):
        assert [str(error) for error in judge.validate({"n": 1})] == []
        assert [error.path for error in judge.validate({"n": 1.0})] == ["n"]
    assert len(asked) == 2
    assert judge.validate({"n": 2}, {"n": 1}) == []
    assert [error.path for error in judge.validate({"n": 2}, {"n": 3})] == ["n"]
