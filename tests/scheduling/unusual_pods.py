"""Unusual pods: unexpected keys, operators, numbers and selectors.

An API server refuses most of it; pods of other API servers, of webhooks that came later, and of
files given to `karpenter plan` are not so well-behaved.
"""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter_core.api.labels import HOSTNAME, NODE_POOL, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    HostPort,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    Toleration,
    TopologySpread,
    WeightedAffinityTerm,
)
from karpenter_core.testing.builders import pod, pod_shape

KEYS = st.sampled_from([
    "example.com/nowhere", "", "kubernetes.io/", "/", ZONE, HOSTNAME, NODE_POOL,
    "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region", "x" * 300, "é",
])  # fmt: skip
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "", "Foo"])
VALUES = st.lists(
    st.sampled_from(["", "zone-a", "1", "-1", "9" * 40, "1.5", "x", "node-0"]), max_size=3
).map(tuple)
NUMBERS = st.sampled_from([0, 1, 2, 5, -1, -100, 2**31, 2**62])
LABELS = st.dictionaries(st.sampled_from(["app", "", "odd"]), st.sampled_from(["web", "", "1"]))

expressions = st.builds(LabelSelectorRequirement, key=KEYS, operator=OPERATORS, values=VALUES)
selectors = st.none() | st.builds(
    LabelSelector,
    match_labels=LABELS,
    match_expressions=st.lists(expressions, max_size=2).map(tuple),
)
spreads = st.builds(
    TopologySpread,
    topology_key=KEYS,
    max_skew=NUMBERS,
    when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway", "", "Foo"]),
    selector=selectors,
    min_domains=st.none() | NUMBERS,
    node_affinity_policy=st.sampled_from(["Honor", "Ignore", "", "Foo"]),
    node_taints_policy=st.sampled_from(["Honor", "Ignore", "", "Foo"]),
    match_label_keys=st.lists(KEYS, max_size=1).map(tuple),
)
terms = st.builds(
    AffinityTerm,
    topology_key=KEYS,
    selector=selectors,
    namespaces=st.lists(st.sampled_from(["default", "", "gone"]), max_size=2).map(tuple),
    namespace_selector=selectors,
    match_label_keys=st.lists(KEYS, max_size=1).map(tuple),
    mismatch_label_keys=st.lists(KEYS, max_size=1).map(tuple),
)
node_terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(
        st.builds(NodeSelectorRequirement, key=KEYS, operator=OPERATORS, values=VALUES), max_size=2
    ).map(tuple),
)
tolerations = st.builds(
    Toleration,
    key=KEYS,
    operator=OPERATORS,
    value=st.sampled_from(["", "x"]),
    effect=st.sampled_from(["", "NoSchedule", "Foo"]),
    toleration_seconds=st.none() | NUMBERS,
)
ports = st.builds(
    HostPort,
    port=st.sampled_from([0, -1, 80, 2**40]),
    protocol=st.sampled_from(["TCP", "", "Foo"]),
    ip=st.sampled_from(["0.0.0.0", "", "::", "nowhere"]),
)
requests = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu", "", "nodes"]), NUMBERS, max_size=4
).map(lambda amounts: {**amounts, "pods": 1})
"""Every record of a pod has this one."""


def _few(strategy):
    return st.lists(strategy, max_size=2).map(tuple)


@st.composite
def odd_shapes(draw):
    """Draw the shape of some odd pods: a few of its fields are strange."""
    fields = {
        "requests": requests,
        "labels": LABELS,
        "node_selector": st.dictionaries(KEYS, st.sampled_from(["", "x", "zone-a"]), max_size=2),
        "required_node_terms": _few(node_terms),
        "preferred_node_terms": _few(st.builds(PreferredNodeTerm, weight=NUMBERS, term=node_terms)),
        "tolerations": _few(tolerations),
        "topology_spread": _few(spreads),
        "pod_affinity": _few(terms),
        "pod_anti_affinity": _few(terms),
        "preferred_pod_affinity": _few(st.builds(WeightedAffinityTerm, weight=NUMBERS, term=terms)),
        "preferred_pod_anti_affinity": _few(
            st.builds(WeightedAffinityTerm, weight=NUMBERS, term=terms)
        ),
        "host_ports": _few(ports),
        "priority": NUMBERS,
    }
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=4, unique=True))
    return replace(pod_shape(), **{name: draw(fields[name]) for name in chosen})


@st.composite
def odd_pods(draw, *, most=2):
    """Draw some odd pods of one shape or two, all pending."""
    shapes = draw(st.lists(odd_shapes(), min_size=1, max_size=2))
    return tuple(
        pod(f"odd-{number}-{member}", shape=shape)
        for number, shape in enumerate(shapes)
        for member in range(draw(st.integers(1, most)))
    )
