"""Objects that an API server with our CRDs must accept or refuse, as data.

Used with `SchemaValidator` here, and with a real kube-apiserver and the embedded one by the
end-to-end suite: one table, so that all three say the same. Covers acceptance cases A 1-11 and
31.C 56-78 as far as the API server can judge (what only runtime validation refuses is accepted
here: over-long names, duplicate taints, unknown capacity types).
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

Json = dict[str, Any]

NODE_CLASS_REF: Json = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


class Case(NamedTuple):
    """An object to create; `field` is where it is refused, None when it is accepted.

    A real API server may add causes: about rules it did not run (`<nil>`) and about the path of
    the scale subresource (`.spec.replicas`).
    """

    name: str
    kind: str
    object: Json
    field: str | None


class UpdateCase(NamedTuple):
    """An object to create and what to replace it with."""

    name: str
    kind: str
    old: Json
    new: Json
    field: str | None


class DefaultCase(NamedTuple):
    """An object to create, and the spec that must then be stored."""

    name: str
    kind: str
    object: Json
    spec: Json


def node_pool(template: Json | None = None, /, metadata: Json | None = None, **spec: Any) -> Json:
    """Return a NodePool with fields of `spec.template.spec`, its metadata, and of `spec`."""
    mould: Json = {"spec": {"requirements": [], "nodeClassRef": NODE_CLASS_REF} | (template or {})}
    if metadata is not None:
        mould["metadata"] = metadata
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web"},
        "spec": {"template": mould} | spec,
    }


def node_claim(**spec: Any) -> Json:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "web-x7k2p"},
        "spec": {"requirements": [], "nodeClassRef": NODE_CLASS_REF} | spec,
    }


def kwok_node_class(**spec: Any) -> Json:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def node_overlay(**spec: Any) -> Json:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "discount"},
        "spec": {"requirements": []} | spec,
    }


def without(obj: Json, *path: str) -> Json:
    """Return a copy of the object without one field."""
    obj = copy.deepcopy(obj)
    place = obj
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return obj


CASES: list[Case] = []
DEFAULT_CASES: list[DefaultCase] = []
UPDATE_CASES: list[UpdateCase] = []


def _pool(name: str, field: str | None, obj: Json) -> None:
    CASES.append(Case(name, "NodePool", obj, field))


def _both(name: str, field: str | None, fields: Json) -> None:
    """Add a case for the fields that NodePool template and NodeClaim share."""
    in_pool = None if field is None else f"spec.template.spec.{field}"
    in_claim = None if field is None else f"spec.{field}"
    CASES.append(Case(f"NodePool: {name}", "NodePool", node_pool(fields), in_pool))
    CASES.append(Case(f"NodeClaim: {name}", "NodeClaim", node_claim(**fields), in_claim))


# --- structure -----------------------------------------------------------------------------------

_both("minimal", None, {})
_pool("without spec", "spec", without(node_pool(), "spec"))
_pool("without template", "spec.template", without(node_pool(), "spec", "template"))
_pool(
    "without template spec",
    "spec.template.spec",
    without(node_pool(), "spec", "template", "spec"),
)
_pool(
    "without requirements",
    "spec.template.spec.requirements",
    without(node_pool(), "spec", "template", "spec", "requirements"),
)
_both("requirements that are no list", "requirements", {"requirements": "all"})
_pool("null where a default is", None, node_pool(disruption=None, weight=None, limits=None))
_pool("a field nobody knows", None, node_pool(colour="blue"))

# --- A 2, 56: expireAfter and consolidateAfter; A 3, 57: terminationGracePeriod -------------------

for _text in ("30s", "1h30m5s", "720h", "90m", "Never"):
    _both(f"expireAfter {_text}", None, {"expireAfter": _text})
    _pool(f"consolidateAfter {_text}", None, node_pool(disruption={"consolidateAfter": _text}))
for _text in ("-1s", "1hr", "FooNever", "NeverFoo", "", "30", "1.5h", "30s\n"):
    _both(f"expireAfter {_text!r}", "expireAfter", {"expireAfter": _text})
    _pool(
        f"consolidateAfter {_text!r}",
        "spec.disruption.consolidateAfter",
        node_pool(disruption={"consolidateAfter": _text}),
    )
for _text in ("30s", "1h30m5s"):
    _both(f"terminationGracePeriod {_text}", None, {"terminationGracePeriod": _text})
for _text in ("-1s", "1hr", "Never", "FooNever"):
    _both(
        f"terminationGracePeriod {_text}",
        "terminationGracePeriod",
        {"terminationGracePeriod": _text},
    )
_both("expireAfter as a number", "expireAfter", {"expireAfter": 30})

# --- A 4, 59: consolidationPolicy -----------------------------------------------------------------

for _text in ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"):
    _pool(f"policy {_text}", None, node_pool(disruption={"consolidationPolicy": _text}))
for _text in ("balanced", "whenempty", "", "WhenUnderutilized", "1", "foo"):
    _pool(
        f"policy {_text!r}",
        "spec.disruption.consolidationPolicy",
        node_pool(disruption={"consolidationPolicy": _text}),
    )

# --- A 5, 6, 60-63: budgets -----------------------------------------------------------------------

_BUDGETS = "spec.disruption.budgets"


def _budget(name: str, field: str | None, *budgets: Json) -> None:
    _pool(f"budget: {name}", field, node_pool(disruption={"budgets": list(budgets)}))


_budget("neither schedule nor duration", None, {"nodes": "10"})
_budget("all budgets gone", None)
_budget("weekly", None, {"nodes": "10", "schedule": "20 8 * * 1", "duration": "20m"})
_budget("hours and minutes", None, {"nodes": "10", "schedule": "20 8 * * 1", "duration": "1h20m"})
_budget("canonical duration", None, {"nodes": "1", "schedule": "@daily", "duration": "1h20m0s"})
for _text in ("annually", "yearly", "monthly", "weekly", "daily", "midnight", "hourly"):
    _budget(f"@{_text}", None, {"nodes": "10", "schedule": f"@{_text}", "duration": "20m"})
for _text in ("0", "7", "1000", "0%", "9%", "99%", "100%"):
    _budget(f"nodes {_text}", None, {"nodes": _text})
for _text in ("-10", "-10%", "1000%", "101%", "a", "", "10 %", "1.5"):
    _budget(f"nodes {_text!r}", f"{_BUDGETS}[0].nodes", {"nodes": _text})
_budget("nodes as a number", f"{_BUDGETS}[0].nodes", {"nodes": 10})
for _text in ("*", "20 8 *", "@wrongly", "nope"):
    _budget(
        f"schedule {_text!r}",
        f"{_BUDGETS}[0].schedule",
        {"nodes": "10", "schedule": _text, "duration": "20m"},
    )
for _text in ("-20m", "30s", "20m30s", "Never", ""):
    _budget(
        f"duration {_text!r}",
        f"{_BUDGETS}[0].duration",
        {"nodes": "10", "schedule": "20 8 * * 1", "duration": _text},
    )
_budget("schedule alone", _BUDGETS, {"nodes": "10", "schedule": "20 8 * * 1"})
_budget("duration alone", _BUDGETS, {"nodes": "10", "duration": "20m"})
_budget(
    "one bad of two",
    _BUDGETS,
    {"nodes": "10", "schedule": "20 8 * * 1", "duration": "20m"},
    {"nodes": "10", "schedule": "20 8 * * 1"},
)
_budget("51 budgets", _BUDGETS, *({"nodes": "10"} for _ in range(51)))
_budget("50 budgets", None, *({"nodes": "10"} for _ in range(50)))
for _reasons in (["Drifted"], ["Underutilized"], ["Empty"], ["Drifted", "Underutilized", "Empty"]):
    _budget(f"reasons {_reasons}", None, {"nodes": "10", "reasons": _reasons})
for _text in ("invalid", "expired", ""):
    _budget(f"reason {_text!r}", f"{_BUDGETS}[0].reasons[0]", {"nodes": "1", "reasons": [_text]})
_budget(
    "reason twice",
    f"{_BUDGETS}[0].reasons[1]",
    {"nodes": "1", "reasons": ["Empty", "Empty"]},
)

# --- A 7-9, 66-72: requirements -------------------------------------------------------------------

_FIRST = "requirements[0]"


def _requirement(name: str, field: str | None, *requirements: Json) -> None:
    _both(f"requirement: {name}", field, {"requirements": list(requirements)})


for _operator in ("In", "NotIn"):
    _requirement(_operator, None, {"key": "team", "operator": _operator, "values": ["a", "b"]})
for _operator in ("Exists", "DoesNotExist", "NotIn"):
    _requirement(f"{_operator} bare", None, {"key": "team", "operator": _operator})
for _operator in ("Gt", "Lt", "Gte", "Lte"):
    for _values in (["1"], ["0"], ["2147483648"]):
        _requirement(
            f"{_operator} {_values}",
            None,
            {"key": "example.com/size", "operator": _operator, "values": _values},
        )
    for _values in ([], ["1", "2"], ["a"], ["1.5"], ["-1"], [""]):
        _requirement(
            f"{_operator} {_values}",
            "requirements",
            {"key": "example.com/size", "operator": _operator, "values": _values},
        )
    _requirement(f"{_operator} bare", "requirements", {"key": "size", "operator": _operator})
for _operator in ("unknown", "in", ""):
    _requirement(
        f"operator {_operator!r}",
        f"{_FIRST}.operator",
        {"key": "team", "operator": _operator, "values": ["a"]},
    )
_requirement("without operator", f"{_FIRST}.operator", {"key": "team"})
_requirement("without key", f"{_FIRST}.key", {"operator": "Exists"})
_requirement("In without values", "requirements", {"key": "team", "operator": "In"})
_requirement("In with no values", "requirements", {"key": "t", "operator": "In", "values": []})
_requirement(
    "value as a number", f"{_FIRST}.values[0]", {"key": "t", "operator": "In", "values": [1]}
)

for _key in ("Team", "team.example_x", "example.com/Team-1", "a", f"{'a' * 250}.b/c"):
    _requirement(f"key {_key[:20]}", None, {"key": _key, "operator": "Exists"})
_requirement("key too long for a label", None, {"key": "a" * 100, "operator": "Exists"})
_requirement("key of 317", f"{_FIRST}.key", {"key": "a" * 317, "operator": "Exists"})
for _key in ("te am", "team?", "", "Example.com/team", "example.com/", "/team", "a/b/c", "-a"):
    _requirement(f"key {_key!r}", f"{_FIRST}.key", {"key": _key, "operator": "Exists"})
for _key in (
    "karpenter.sh/test",
    "karpenter.sh/initialized",
    "sub.karpenter.sh/test",
    "mykarpenter.sh/test",
    "kubernetes.io/hostname",
):
    _requirement(f"key {_key}", f"{_FIRST}.key", {"key": _key, "operator": "Exists"})
for _key in (
    "karpenter.sh/capacity-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "kubernetes.io/custom",
    "sub.kubernetes.io/custom",
    "k8s.io/custom",
    "sub.k8s.io/custom",
    "kops.k8s.io/instancegroup",
    "node-restriction.kubernetes.io/team",
    "karpenter.kwok.sh/instance-family",
):
    _requirement(f"key {_key}", None, {"key": _key, "operator": "In", "values": ["a"]})
CASES.extend(
    Case(
        f"{_kind}: requirement on karpenter.sh/nodepool",
        _kind,
        _make([{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["web"]}]),
        _field,
    )
    for _kind, _make, _field in (
        (
            "NodePool",
            lambda requirements: node_pool({"requirements": requirements}),
            "spec.template.spec.requirements[0].key",
        ),
        ("NodeClaim", lambda requirements: node_claim(requirements=requirements), None),
    )
)
_requirement(
    "100 requirements", None, *({"key": f"k{i}", "operator": "Exists"} for i in range(100))
)
_requirement(
    "101 requirements",
    "requirements",
    *({"key": f"k{i}", "operator": "Exists"} for i in range(101)),
)
_requirement(
    "overlapping",
    None,
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
)
_requirement("minValues 1", None, {"key": "t", "operator": "Exists", "minValues": 1})
_requirement("minValues 50", None, {"key": "t", "operator": "Exists", "minValues": 50})
for _count in (-1, 0, 51):
    _requirement(
        f"minValues {_count}",
        f"{_FIRST}.minValues",
        {"key": "t", "operator": "Exists", "minValues": _count},
    )
_requirement(
    "51 values",
    None,
    {"key": "t", "operator": "In", "values": [f"v{i}" for i in range(51)]},
)
_requirement(
    "minValues above the number of values",
    "requirements",
    {"key": "t", "operator": "In", "values": ["a"], "minValues": 2},
)
_requirement(
    "minValues above the number of excluded values",
    None,
    {"key": "t", "operator": "NotIn", "values": ["a"], "minValues": 2},
)

# --- A 10, 64, 65: taints -------------------------------------------------------------------------

for _list in ("taints", "startupTaints"):
    for _taint in (
        {"key": "team", "value": "web", "effect": "NoSchedule"},
        {"key": "example.com/team", "effect": "NoExecute"},
        {"key": "team", "effect": "PreferNoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "a" * 100, "effect": "NoSchedule"},
    ):
        _both(f"{_list}: {_taint['key'][:20]}:{_taint['effect']}", None, {_list: [_taint]})
    for _at, _taint in (
        ("key", {"key": "???", "effect": "NoSchedule"}),
        ("key", {"key": "", "effect": "NoSchedule"}),
        ("key", {"effect": "NoSchedule"}),
        ("value", {"key": "team", "value": "???", "effect": "NoSchedule"}),
        ("value", {"key": "team", "value": "", "effect": "NoSchedule"}),
        ("effect", {"key": "team", "effect": "???"}),
        ("effect", {"key": "team", "effect": ""}),
        ("effect", {"key": "team"}),
        ("timeAdded", {"key": "team", "effect": "NoSchedule", "timeAdded": "yesterday"}),
    ):
        _both(f"{_list}: {_taint}", f"{_list}[0].{_at}", {_list: [_taint]})
    _both(
        f"{_list}: two effects of one key",
        None,
        {_list: [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]},
    )
_both(
    "the same taint in both lists (refused at runtime)",
    None,
    {
        "taints": [{"key": "a", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "a", "effect": "NoSchedule"}],
    },
)

# --- A 11, 74: nodeClassRef -----------------------------------------------------------------------

for _field in ("group", "kind", "name"):
    _ref = f"nodeClassRef.{_field}"
    _both(f"{_field} empty", _ref, {"nodeClassRef": NODE_CLASS_REF | {_field: ""}})
    _both(f"{_field} missing", _ref, {"nodeClassRef": without(NODE_CLASS_REF, _field)})
_both(
    "group with a slash",
    "nodeClassRef.group",
    {"nodeClassRef": NODE_CLASS_REF | {"group": "karpenter.kwok.sh/v1"}},
)
for _field, _expected in (
    ("group", "spec.template.spec.nodeClassRef"),
    ("kind", "spec.template.spec.nodeClassRef"),
    ("name", None),
):
    UPDATE_CASES.append(
        UpdateCase(
            f"another {_field} in nodeClassRef",
            "NodePool",
            node_pool(),
            node_pool({"nodeClassRef": NODE_CLASS_REF | {_field: "other"}}),
            _expected,
        )
    )

# --- 67, 68, 73: template labels ------------------------------------------------------------------

_LABELS = "spec.template.metadata.labels"
for _labels in (
    {"team": "web"},
    {"example.com/team": ""},
    {"karpenter.sh/capacity-type": "spot"},
    {"kubernetes.io/custom": "a", "sub.k8s.io/custom": "b", "kops.k8s.io/instancegroup": "c"},
    {"topology.kubernetes.io/zone": "zone-1"},
    {"a key that only runtime validation refuses": "web"},
    {f"label-{i}": "a" for i in range(100)},
):
    _pool(f"labels {str(_labels)[:60]}", None, node_pool(metadata={"labels": _labels}))
for _key, _field in (
    ("karpenter.sh/nodepool", _LABELS),
    ("karpenter.sh/test", _LABELS),
    ("sub.karpenter.sh/test", _LABELS),
    ("kubernetes.io/hostname", _LABELS),
):
    _pool(f"label {_key}", _field, node_pool(metadata={"labels": {_key: "a"}}))
_pool("label value", f"{_LABELS}.team", node_pool(metadata={"labels": {"team": "w b"}}))
_pool("long label value", f"{_LABELS}.team", node_pool(metadata={"labels": {"team": "a" * 64}}))
_pool("label value as a number", f"{_LABELS}.team", node_pool(metadata={"labels": {"team": 1}}))
_pool("101 labels", _LABELS, node_pool(metadata={"labels": {f"l{i}": "a" for i in range(101)}}))
_pool("annotations", None, node_pool(metadata={"annotations": {"note": "any text, at all"}}))

# --- limits and weight ----------------------------------------------------------------------------

_pool("limits", None, node_pool(limits={"cpu": 1000, "memory": "1.5Gi", "nodes": "10"}))
for _text in ("1K", "", "1 Gi", "ten", "1gi"):
    _pool(f"limit {_text!r}", "spec.limits.cpu", node_pool(limits={"cpu": _text}))
_pool("limit as a float", "spec.limits.cpu", node_pool(limits={"cpu": 1.5}))
for _weight in (1, 100):
    _pool(f"weight {_weight}", None, node_pool(weight=_weight))
for _weight in (0, -1, 101, "1", 1.5):
    _pool(f"weight {_weight!r}", "spec.weight", node_pool(weight=_weight))

# --- 75-78: static pools --------------------------------------------------------------------------

for _replicas in (0, 1, 100_000):
    _pool(f"replicas {_replicas}", None, node_pool(replicas=_replicas))
_pool("replicas -1", "spec.replicas", node_pool(replicas=-1))
for _resource in ("cpu", "memory", "pods", "ephemeral-storage"):
    _pool(
        f"static with limit of {_resource}", "spec", node_pool(replicas=1, limits={_resource: "10"})
    )
_pool(
    "static with limits of nodes and cpu",
    "spec",
    node_pool(replicas=1, limits={"nodes": "10", "cpu": "10"}),
)
_pool("static with limit of nodes", None, node_pool(replicas=1, limits={"nodes": "10"}))
_pool("static with no limits", None, node_pool(replicas=1, limits={}))
_pool("static with weight", "spec", node_pool(replicas=1, weight=10))
_pool(
    "static with all that is allowed",
    None,
    node_pool(
        {
            "taints": [{"key": "a", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "b", "effect": "NoSchedule"}],
            "requirements": [{"key": "team", "operator": "In", "values": ["web"]}],
            "expireAfter": "30m",
            "terminationGracePeriod": "1h",
        },
        metadata={"labels": {"team": "web"}, "annotations": {"note": "x"}},
        replicas=3,
        disruption={"budgets": [{"nodes": "20%"}], "consolidateAfter": "Never"},
    ),
)
for _name, _old, _new, _expected in (
    ("static to dynamic", {"replicas": 1}, {}, "spec"),
    ("dynamic to static", {}, {"replicas": 1}, "spec"),
    ("more replicas", {"replicas": 1}, {"replicas": 5}, None),
    (
        "another limit of nodes",
        {"replicas": 1, "limits": {"nodes": "5"}},
        {"replicas": 1, "limits": {"nodes": "10"}},
        None,
    ),
):
    UPDATE_CASES.append(
        UpdateCase(_name, "NodePool", node_pool(**_old), node_pool(**_new), _expected)
    )

# --- NodeClaim ------------------------------------------------------------------------------------

_claim_with_requests = node_claim(resources={"requests": {"cpu": "100m", "pods": 3}})
CASES.append(Case("NodeClaim: requests", "NodeClaim", _claim_with_requests, None))
CASES.append(
    Case(
        "NodeClaim: bad request",
        "NodeClaim",
        node_claim(resources={"requests": {"cpu": "one"}}),
        "spec.resources.requests.cpu",
    )
)
UPDATE_CASES.append(
    UpdateCase(
        "NodeClaim: another expireAfter",
        "NodeClaim",
        node_claim(),
        node_claim(expireAfter="1h"),
        "spec",
    )
)
UPDATE_CASES.append(
    UpdateCase("NodeClaim: unchanged", "NodeClaim", node_claim(), node_claim(), None)
)

# --- 334: overlays -------------------------------------------------------------------------------


def _overlay(name: str, field: str | None, **spec: Any) -> None:
    CASES.append(Case(f"NodeOverlay: {name}", "NodeOverlay", node_overlay(**spec), field))


for _case in [each for each in CASES if each.name.startswith("NodeClaim: requirement: ")]:
    _listed = _case.object["spec"]["requirements"]
    # NotIn needs values here, as it does not elsewhere; an overlay has no minValues.
    if all(each.get("operator") != "NotIn" and "minValues" not in each for each in _listed):
        CASES.append(
            _case._replace(
                name=_case.name.replace("NodeClaim", "NodeOverlay"),
                kind="NodeOverlay",
                object=node_overlay(requirements=_listed),
            )
        )
for _spec in ({}, {"values": []}):
    _overlay(
        f"NotIn {_spec}",
        "spec.requirements",
        requirements=[{"key": "a", "operator": "NotIn"} | _spec],
    )
_overlay(
    "of a pool",
    None,
    requirements=[{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["web"]}],
)
_overlay(
    "several of one key",
    None,
    requirements=[
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]},
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["a", "c"]},
    ],
)
_overlay("of everything", None)
CASES.append(
    Case(
        "NodeOverlay: without requirements",
        "NodeOverlay",
        without(node_overlay(price="1"), "spec", "requirements"),
        "spec.requirements",
    )
)
CASES.append(
    Case("NodeOverlay: without spec", "NodeOverlay", without(node_overlay(), "spec"), "spec")
)
for _text in ("42", "0", "34.43", "0.0001", "13234.223"):
    _overlay(f"price {_text}", None, price=_text)
for _text in (
    "+42", ".5", "42.", "42%", "3,14", "1e10", "0x42", "forty-two", "42a", "42 ", " 42", "42.0.0",
    "-", ".", "-.42", "-100.0%", "-101.1%", "-129", "",
):  # fmt: skip
    _overlay(f"price {_text!r}", "spec.price", price=_text)
for _text in (
    "+1%", "-1%", "-100%", "+100.102%", "+298%", "+43", "-43", "+34.43", "-34.43", "-129", "+.5",
):  # fmt: skip
    _overlay(f"adjustment {_text}", None, priceAdjustment=_text)
for _text in ("1%", "1", "1.3", "-101.1%", "-129%", "-100.0%", "+", "++1", "+1 %", ""):
    _overlay(f"adjustment {_text!r}", "spec.priceAdjustment", priceAdjustment=_text)
_overlay("both prices", "spec", price="0.432", priceAdjustment="+10%")
for _resource in ("cpu", "memory", "ephemeral-storage", "pods"):
    _overlay(f"capacity {_resource}", "spec.capacity", capacity={_resource: "1"})
_overlay("capacity", None, capacity={"smarter-devices/fuse": 1, "hugepages-1Gi": "2Gi"})
_overlay("capacity one", "spec.capacity.example.com/x", capacity={"example.com/x": "one"})
for _weight in (1, 10_000):
    _overlay(f"weight {_weight}", None, weight=_weight)
for _weight in (0, 10_001, -1):
    _overlay(f"weight {_weight}", "spec.weight", weight=_weight)

# --- KWOKNodeClass --------------------------------------------------------------------------------

for _text, _expected in (("5s", None), ("1m30s", None), ("soon", "spec.nodeRegistrationDelay")):
    CASES.append(
        Case(
            f"KWOKNodeClass: delay {_text}",
            "KWOKNodeClass",
            kwok_node_class(nodeRegistrationDelay=_text),
            _expected,
        )
    )

# --- A 1, 58: defaults ----------------------------------------------------------------------------

_DISRUPTION: Json = {
    "consolidateAfter": "0s",
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "budgets": [{"nodes": "10%"}],
}
_TEMPLATE: Json = {
    "spec": {"requirements": [], "nodeClassRef": NODE_CLASS_REF, "expireAfter": "720h"}
}
for _name, _given, _stored in (
    ("no disruption", {}, {"disruption": _DISRUPTION}),
    ("null disruption", {"disruption": None}, {"disruption": _DISRUPTION}),
    ("empty disruption", {"disruption": {}}, {"disruption": _DISRUPTION}),
    (
        "no consolidateAfter",
        {"disruption": {"consolidationPolicy": "WhenEmpty"}},
        {"disruption": _DISRUPTION | {"consolidationPolicy": "WhenEmpty"}},
    ),
    (
        "no consolidateAfter on a static pool",
        {"replicas": 2, "disruption": {"budgets": [{}]}},
        {"replicas": 2, "disruption": _DISRUPTION},
    ),
    ("unknown field", {"colour": "blue"}, {"disruption": _DISRUPTION}),
):
    DEFAULT_CASES.append(
        DefaultCase(_name, "NodePool", node_pool(**_given), {"template": _TEMPLATE} | _stored)
    )
DEFAULT_CASES.append(
    DefaultCase("claim", "NodeClaim", node_claim(), _TEMPLATE["spec"]),
)

# --- CapacityBuffer -------------------------------------------------------------------------------

_CHUNK: Json = {"podTemplateRef": {"name": "chunk"}}
_WEB: Json = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}


def capacity_buffer(**spec: Any) -> Json:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "headroom", "namespace": "default"},
        "spec": spec,
    }


for _name, _given, _expected in (
    ("template and replicas", {**_CHUNK, "replicas": 3}, None),
    ("template and limits", {**_CHUNK, "limits": {"cpu": "4", "memory": 8}}, None),
    ("workload", {**_WEB, "replicas": 5}, None),
    ("workload alone", _WEB, None),
    (
        "workload without group",
        {"scalableRef": {"kind": "ReplicationController", "name": "web"}, "replicas": 1},
        None,
    ),
    ("replicas and percentage", {**_WEB, "replicas": 10, "percentage": 20}, None),
    ("no replicas", {**_CHUNK, "replicas": 0}, None),
    ("no percentage", {**_WEB, "percentage": 0}, None),
    ("more than all", {**_WEB, "percentage": 250}, None),
    ("another strategy", {**_WEB, "provisioningStrategy": "example.com/standby"}, None),
    ("nothing", {}, None),
    ("template and workload", {**_CHUNK, **_WEB, "replicas": 3}, "spec"),
    ("template alone", _CHUNK, "spec"),
    ("template and percentage", {**_CHUNK, "percentage": 20}, "spec"),
    ("negative replicas", {**_CHUNK, "replicas": -1}, "spec.replicas"),
    ("negative percentage", {**_WEB, "percentage": -1}, "spec.percentage"),
    (
        "template without name",
        {"podTemplateRef": {"name": ""}, "replicas": 1},
        "spec.podTemplateRef.name",
    ),
    (
        "workload without kind",
        {"scalableRef": {"kind": "", "name": "web"}, "replicas": 1},
        "spec.scalableRef.kind",
    ),
    (
        "workload without name",
        {"scalableRef": {"kind": "Deployment", "name": ""}, "replicas": 1},
        "spec.scalableRef.name",
    ),
    ("bad limit", {**_CHUNK, "limits": {"cpu": "many"}}, "spec.limits.cpu"),
):
    CASES.append(
        Case(f"CapacityBuffer: {_name}", "CapacityBuffer", capacity_buffer(**_given), _expected)
    )
DEFAULT_CASES.append(
    DefaultCase(
        "buffer",
        "CapacityBuffer",
        capacity_buffer(**_CHUNK, replicas=1),
        {**_CHUNK, "replicas": 1, "provisioningStrategy": "buffer.x-k8s.io/active-capacity"},
    )
)
