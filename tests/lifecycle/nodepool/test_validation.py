"""NodePools are validated at runtime, with a condition."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.conditions import find_condition, is_true
from karpenter_core.api.labels import RETURN_AFTER, RETURN_BUDGET, SCHEDULES, SPOT_SHARE, WELL_KNOWN
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.api.nodepool import is_detect_only
from karpenter_core.lifecycle.nodepool.validation import (
    LabelRules,
    validate_node_pool,
    with_validation,
)
from karpenter_core.testing.builders import EPOCH, node_pool

NOW = EPOCH + timedelta(minutes=1)
LONG = "a" * 64


def errors(pool, rules=None) -> tuple[str, ...]:
    return validate_node_pool(pool, rules=rules).errors


def requirement_errors(*requirement, rules=None) -> tuple[str, ...]:
    return errors(node_pool(requirements=[requirement]), rules)


@pytest.mark.parametrize(("annotation", "value"), [(SPOT_SHARE, "many"), (SCHEDULES, "every day")])
def test_annotations_that_cannot_be_read_are_errors(annotation, value):
    """A pool that is limited by them must not launch without."""
    pool = node_pool()
    metadata = pool.metadata.model_copy(update={"annotations": {annotation: value}})
    (error,) = errors(pool.model_copy(update={"metadata": metadata}))
    assert annotation in error


def test_an_ordinary_pool_is_valid():
    pool = node_pool(
        labels={"team": "web", "example.com/tier": ""},
        annotations={"note": "anything at all"},
        taints=["dedicated=web:NoSchedule", "dedicated=web:NoExecute"],
        startup_taints=["cni:NoSchedule"],
        requirements=[("kubernetes.io/arch", "In", "amd64"), ("size", "Gt", "3")],
    )

    assert errors(pool) == ()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("karpenter.sh/nodepool", "a", 'key "karpenter.sh/nodepool" is restricted'),
        ("karpenter.sh/test", "a", "using label karpenter.sh/test is not allowed"),
        ("sub.karpenter.sh/test", "a", "using label sub.karpenter.sh/test is not allowed"),
        ("kubernetes.io/hostname", "a", "using label kubernetes.io/hostname is not allowed"),
        ("te am", "a", 'invalid key "te am"'),
        (LONG, "a", "no more than 63 characters"),
        (f"{'a.' * 130}a/team", "a", "prefix must be no more than 253"),
        ("Example.com/team", "a", "lower-case DNS subdomain"),
        ("/team", "a", "lower-case DNS subdomain"),
        ("a/b/c", "a", "more than one '/'"),
        ("", "a", 'invalid key ""'),
        ("team", "w b", 'invalid value "w b" of "team"'),
        ("team", LONG, "no more than 63 characters"),
        ("team", "-", 'invalid value "-" of "team"'),
    ],
)
def test_bad_label_is_named(key, value, text):
    """Cases 64, 67, 73."""
    (error, *_) = errors(node_pool(labels={key: value}))

    assert error.startswith("labels: ")
    assert text in error


@pytest.mark.parametrize(
    "key",
    [
        *sorted(WELL_KNOWN - {"karpenter.sh/nodepool"}),
        "kubernetes.io/custom",
        "sub.k8s.io/custom",
        "kops.k8s.io/instancegroup",
        "mykarpenter.sh/custom",
        "karpenter.kwok.sh/instance-family",
    ],
)
def test_other_label_domains_are_allowed(key):
    """Case 68."""
    value = "on-demand" if key == "karpenter.sh/capacity-type" else "a"
    assert errors(node_pool(labels={key: value}, requirements=[(key, "In", value)])) == ()


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        ({"taints": ["???:NoSchedule"]}, 'taints[0]: invalid key "???"'),
        ({"taints": [f"{LONG}:NoSchedule"]}, "taints[0]: invalid key"),
        ({"startup_taints": ["a=???:NoSchedule"]}, 'startupTaints[0]: invalid value "???"'),
        ({"taints": ["a:Sometimes"]}, 'taints[0]: invalid effect "Sometimes"'),
        (
            {"taints": ["a=1:NoSchedule", "a=2:NoSchedule"]},
            "taints[1]: duplicate taint a:NoSchedule, first in taints[0]",
        ),
        (
            {"taints": ["b:NoSchedule", "a:NoSchedule"], "startup_taints": ["a:NoSchedule"]},
            "startupTaints[0]: duplicate taint a:NoSchedule, first in taints[1]",
        ),
    ],
)
def test_bad_taint_is_named(lists, text):
    """Cases A 12, 64, 65."""
    (error,) = errors(node_pool(**lists))

    assert text in error


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (("karpenter.sh/nodepool", "In", "web"), '"karpenter.sh/nodepool" is restricted'),
        (("karpenter.sh/test", "Exists"), "using label karpenter.sh/test is not allowed"),
        (("kubernetes.io/hostname", "Exists"), "kubernetes.io/hostname is not allowed"),
        ((LONG, "Exists"), "is not a qualified name"),
        (("team", "unknown", "a"), "unsupported operator unknown"),
        (("team", "In"), "with operator In must have a value defined"),
        (("team", "In", LONG), "invalid value"),
        (("team", "Gt"), "single positive integer value"),
        (("team", "Lt", "1", "2"), "single positive integer value"),
        (("team", "Gte", "-1"), "single positive integer value"),
        (("team", "Lte", "one"), "single positive integer value"),
    ],
)
def test_bad_requirement_is_named(requirement, text):
    """Cases 66, 67, 69, 70."""
    result = requirement_errors(*requirement)

    assert all(error.startswith("requirements[0]: ") for error in result)
    assert any(text in error for error in result)


def test_deprecated_keys_are_checked_as_their_aliases():
    assert requirement_errors("beta.kubernetes.io/arch", "In", "amd64") == ()
    assert requirement_errors("failure-domain.beta.kubernetes.io/zone", "Exists") == ()


def test_too_few_values_for_min_values():
    """Case 71."""
    pool = node_pool(requirements=[("team", "In", "a")])
    template = pool.spec.template
    (requirement,) = template.spec.requirements
    wanting = requirement.model_copy(update={"min_values": 2})
    spec = template.spec.model_copy(update={"requirements": (wanting,)})
    template = template.model_copy(update={"spec": spec})
    pool = pool.model_copy(update={"spec": pool.spec.model_copy(update={"template": template})})

    (error,) = errors(pool)

    assert error == (
        "requirements[0]: key team with operator In must have at least minValues (2) values, got 1"
    )


@pytest.mark.parametrize(
    ("values", "valid", "warned"),
    [
        (["spot"], True, False),
        (["on-demand", "spot", "reserved"], True, False),
        (["xspot"], False, False),
        (["xspot", "spot"], True, True),
    ],
)
def test_unknown_capacity_types(values, valid, warned):
    """Cases A 12 and 79: an error only when no known value is left."""
    pool = node_pool(requirements=[("karpenter.sh/capacity-type", "In", *values)])

    errors = validate_node_pool(pool, rules=None)

    assert (not errors.errors) == valid
    assert bool(errors.warnings) == warned
    assert (
        is_true(with_validation(pool, now=NOW, rules=None).status.conditions, "ValidationSucceeded")
        == valid
    )


def test_unknown_capacity_types_other_than_in_are_ignored():
    assert requirement_errors("karpenter.sh/capacity-type", "NotIn", "xspot") == ()


@pytest.mark.parametrize(
    ("values", "errors", "warnings"),
    [
        (["shared"], 0, 0),
        (["shared", "own"], 0, 0),
        (["borrowed", "own"], 0, 1),
        (["borrowed"], 1, 0),
    ],
)
def test_providers_declare_all_values_of_some_labels(values, errors, warnings):
    """An error only when no known value is left, as for capacity types."""
    key = "cloud.example/tenancy"
    rules = LabelRules(
        well_known=WELL_KNOWN | {key}, known_values={key: frozenset({"shared", "own"})}
    )

    result = validate_node_pool(node_pool(requirements=[(key, "In", *values)]), rules=rules)

    assert (len(result.errors), len(result.warnings)) == (errors, warnings)
    assert all("known are ['own', 'shared']" in text for text in result.errors)


def test_providers_restrict_their_domains_and_bring_labels():
    rules = LabelRules(
        well_known=WELL_KNOWN | {"cloud.example/family"},
        restricted_domains=frozenset({"karpenter.sh", "cloud.example"}),
        aliases={"csi.example/zone": "topology.kubernetes.io/zone"},
    )

    assert requirement_errors("cloud.example/family", "Exists", rules=rules) == ()
    assert requirement_errors("csi.example/zone", "Exists", rules=rules) == ()
    (error,) = requirement_errors("cloud.example/other", "Exists", rules=rules)
    assert "restricted domain: [cloud.example karpenter.sh]" in error


def test_some_labels_of_a_restricted_domain_can_be_set_though_no_instance_type_has_them():
    rules = LabelRules(
        restricted_domains=frozenset({"cloud.example"}), settable=frozenset({"cloud.example/cni"})
    )

    assert requirement_errors("cloud.example/cni", "Exists", rules=rules) == ()
    (error,) = requirement_errors("cloud.example/other", "Exists", rules=rules)
    assert "cloud.example/cni" in error


def test_the_condition_carries_all_errors():
    pool = with_validation(node_pool(labels={"te am": "a", "team": "w b"}), now=NOW, rules=None)

    condition = find_condition(pool.status.conditions, "ValidationSucceeded")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "NodePoolValidationFailed")
    assert condition.message.count("labels: ") == 2
    assert find_condition(pool.status.conditions, "Ready").status == "False"


def test_condition_turns_true_once_corrected():
    broken = with_validation(node_pool(labels={"te am": "a"}), now=NOW, rules=None)
    mended = node_pool().model_copy(update={"status": broken.status})

    pool = with_validation(mended, now=NOW, rules=None)

    condition = find_condition(pool.status.conditions, "ValidationSucceeded")
    assert (condition.status, condition.reason, condition.message) == (
        "True",
        "ValidationSucceeded",
        "",
    )
    assert with_validation(pool, now=NOW + timedelta(hours=1), rules=None) is pool


def test_a_message_never_outgrows_the_api():
    pool = with_validation(
        node_pool(requirements=[(f"bad key {i}", "In", *(["?" * 100] * 50)) for i in range(100)]),
        now=NOW,
        rules=None,
    )

    condition = find_condition(pool.status.conditions, "ValidationSucceeded")
    assert len(condition.message) < 5000
    assert condition.message.endswith("errors in all)")


@pytest.mark.parametrize(
    ("annotations", "detects_only", "warned"),
    [
        ({}, False, False),
        ({"karpenter.sh/drift": "detect-only"}, True, False),
        ({"karpenter.sh/drift": "Detect-Only"}, False, True),
        ({"karpenter.sh/drift": ""}, False, True),
    ],
)
def test_the_annotation_on_drift_has_one_value(annotations, detects_only, warned):
    """A misspelt one is pointed at, and the pool stays in use."""
    pool = node_pool()
    metadata = pool.metadata.model_copy(update={"annotations": annotations})
    pool = pool.model_copy(update={"metadata": metadata})

    errors = validate_node_pool(pool, rules=None)

    assert is_detect_only(pool) is detects_only
    assert (errors.errors, bool(errors.warnings)) == ((), warned)


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({RETURN_AFTER: "soon"}, f'annotation {RETURN_AFTER}: "soon" is not a duration; until'),
        (
            {RETURN_AFTER: "1h", RETURN_BUDGET: "some"},
            f'annotation {RETURN_BUDGET}: "some" is neither a number nor a percentage; until',
        ),
        (
            {RETURN_AFTER: "1h", RETURN_BUDGET: "9" * 5_000},
            f'annotation {RETURN_BUDGET}: "{"9" * 5_000}" is neither a number nor a percentage; until',
        ),
        ({RETURN_AFTER: "1h", RETURN_BUDGET: "10%"}, None),
    ],
)
def test_a_wrong_rule_of_return_is_warned_of_and_the_pool_stays_in_use(annotations, problem):
    pool = node_pool()
    metadata = pool.metadata.model_copy(update={"annotations": annotations})
    found = validate_node_pool(pool.model_copy(update={"metadata": metadata}), rules=None)
    assert found.errors == ()
    assert len(found.warnings) == (problem is not None)
    assert problem is None or found.warnings[0].startswith(problem)


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        (
            {"annotations": {f"note-{number}": "x" * 1_000 for number in range(250)}},
            "annotations: they have 251890 bytes and may have 245760",
        ),
        (
            {"requirements": [("team", "In", *(f"{'x' * 50}-{n}" for n in range(10_000)))]},
            "template: it has ",
        ),
    ],
    ids=["annotations", "values"],
)
def test_a_template_too_large_for_a_node_claim_is_an_error(given, begins):
    """The API server stores the NodePool, and would refuse every NodeClaim of it."""
    (error,) = errors(node_pool(**given))

    assert error.startswith(begins)


def test_a_large_template_is_valid():
    """Annotations of 200 KiB are stored with NodeClaims and Nodes."""
    assert errors(node_pool(annotations={f"note-{n}": "x" * 1_000 for n in range(200)})) == ()


@pytest.mark.parametrize(
    ("labels", "requirements", "is_valid"),
    [(97, 0, True), (98, 0, False), (60, 37, True), (60, 38, False), (0, 100, False)],
)
def test_a_template_gives_a_node_claim_a_hundred_requirements_at_most(
    labels, requirements, is_valid
):
    """The CRD of NodePools takes a hundred labels and a hundred requirements, that of NodeClaims fewer."""
    pool = node_pool(
        labels={f"label-{number}": "a" for number in range(labels)},
        requirements=[(f"key-{number}", "In", "a") for number in range(requirements)],
    )
    count = labels + requirements
    refused = f"labels and requirements: they have {count} keys together and may have 97"

    assert errors(pool) == (() if is_valid else (refused,))


@pytest.mark.parametrize("length", [63, 64])
def test_names_that_label_node_claims_have_63_characters_at_most(length):
    """An object's name may have 253, and the API server would refuse every NodeClaim of the pool."""
    name = "a" * length
    ref = NodeClassRef(group="karpenter.kwok.sh", kind="KWOKNodeClass", name=name)
    refused = (
        "name: is a label of NodeClaims and Nodes: must be no more than 63 characters",
        "nodeClassRef.name: is a label of NodeClaims and Nodes: must be no more than 63 characters",
    )

    assert errors(node_pool(name, node_class_ref=ref)) == (() if length == 63 else refused)
