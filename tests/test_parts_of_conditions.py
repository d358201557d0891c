"""Rules of several parts: each part counts by itself."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.api.nodepool import Budget
from karpenter_core.api.records import (
    HostPort,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    OwnerView,
)
from karpenter_core.disruption.budgets import allowed_by, is_active
from karpenter_core.disruption.costs import lifetime_remaining
from karpenter_core.disruption.savings_estimate import _capacity_type
from karpenter_core.errors import BadInputError, SettingsError
from karpenter_core.kube.api_errors import error_of
from karpenter_core.kube.exec_plugin import ExecPlugin
from karpenter_core.kube.kubeconfig import _read_document
from karpenter_core.kube.proxies import _address, _excludes
from karpenter_core.kube.rate_limits import AsyncTokenBucket
from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.kube.server_clock import _parse_date
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.kube.wire.kind_codec import is_version
from karpenter_core.kube.wire.rollouts import _resolved
from karpenter_core.lifecycle.changes import LifecycleStep, _owner_json, merge_steps
from karpenter_core.lifecycle.node.eviction import EvictionVerdict, eviction_verdict
from karpenter_core.lifecycle.node.interruption import _own_offering
from karpenter_core.lifecycle.node.repair import UnhealthyLimit
from karpenter_core.lifecycle.nodeclaim.consistency import shape_issues
from karpenter_core.lifecycle.nodeclaim.expiration import expires_at
from karpenter_core.scheduling.devices.cel_functions import _amount, _semver
from karpenter_core.scheduling.devices.pools import DeviceNode, node_terms_match
from karpenter_core.scheduling.explain.pod_topology import _filter_text
from karpenter_core.scheduling.pod_selectors import _value_error
from karpenter_core.scheduling.ports import ports_conflict
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.requirements.requirement import Requirement
from karpenter_core.scheduling.requirements.requirement_set import _suggest
from karpenter_core.scheduling.resources import fits
from karpenter_core.state import unusable_pools
from karpenter_core.state.gang_places import parse_places, parse_pods, places_details
from karpenter_core.state.unusable_pools import _why_unusable
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import node, node_claim
from tests.controllers.clocks import TwoClocks


@pytest.mark.parametrize(
    "half", [{"schedule": "0 9 * * *"}, {"duration": "1h"}], ids=["schedule", "duration"]
)
def test_a_budget_with_half_of_a_window_is_refused(half):
    with pytest.raises(BadInputError):
        is_active(Budget.model_validate({"nodes": "1", **half}), EPOCH)


def claim(**changes):
    made = node_claim("web")
    metadata = made.metadata.model_copy(update=changes.pop("metadata", {}))
    spec = made.spec.model_copy(update=changes)
    return made.model_copy(update={"metadata": metadata, "spec": spec})


def test_a_claim_without_a_lifetime_or_a_beginning_does_not_expire():
    hour = (
        type(claim().spec)
        .model_validate({**claim().spec.model_dump(by_alias=True), "expireAfter": "1h"})
        .expire_after
    )
    now = EPOCH + timedelta(minutes=15)
    lives = claim(expire_after=hour, metadata={"creation_timestamp": EPOCH})
    unborn = claim(expire_after=hour, metadata={"creation_timestamp": None})
    assert expires_at(lives) == EPOCH + timedelta(hours=1)
    assert lifetime_remaining(lives, now) == 0.75
    assert expires_at(unborn) is None
    assert lifetime_remaining(unborn, now) == 1.0


@pytest.mark.parametrize(
    ("entry", "host", "is_excluded"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/255.0.0.0", "10.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.4", "10.1.2.3", False),
        ("10.1.2.3", "example.com", False),
        ("example.com", "10.1.2.3", False),
        ("[::1]:443", "::1", True),
        ("[::1:443", "::1", False),
        ("::1]:443", "::1", False),
        ("::1", "::1", True),
        ("example.com:443", "example.com", True),
        ("example.com:80", "example.com", False),
        ("example.com", "api.example.com", True),
        ("*.example.com", "api.example.com", True),
        (".example.com", "example.com", False),
        (".example.com", "api.example.com", True),
        ("example.com", "badexample.com", False),
        ("10.0.0.999/8", "10.1.2.3", False),
        ("é" * 70 + ".com", "é" * 70 + ".com", True),
        (":443", "example.com", False),
        (":443", "example.com.", False),
    ],
)
def test_entries_of_no_proxy(entry, host, is_excluded):
    assert _excludes(entry, host, "443", _address(host)) is is_excluded


def test_objects_of_the_cluster_are_in_no_namespace():
    assert NODES.path(namespace="web", name="n") == "/api/v1/nodes/n"
    assert PODS.path(namespace="web", name="p") == "/api/v1/namespaces/web/pods/p"
    assert PODS.path() == "/api/v1/pods"


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_bucket_that_gives_nothing_is_refused(rate, burst):
    with pytest.raises(ValueError, match="token bucket"):
        AsyncTokenBucket(TwoClocks(), rate=rate, burst=burst)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("", True), ("0", True), ("9" * 18, True), ("9" * 99, False), ("x", False), ("٣", False)],
)
def test_a_resource_version_is_a_number_of_some_digits(text, is_one):
    assert is_version(text) is is_one


@pytest.mark.parametrize("text", ["25", "x%", "%", "-5%", "٣%"])
def test_a_limit_of_a_rollout_is_a_number_or_a_percentage(text):
    with pytest.raises(ValueError, match="maxSurge"):
        _resolved(text, "maxSurge", 10, up=True)
    assert (_resolved("25%", "maxSurge", 10, up=True), _resolved(3, "x", 10, up=True)) == (3, 3)


def test_steps_that_follow_each_other_keep_what_either_says():
    error, other = ValueError("first"), ValueError("second")
    plain, step = LifecycleStep(claim=claim()), LifecycleStep
    full = step(claim=claim(), error=error, delete="why", exhausted_for="class")
    later = step(claim=claim(), error=other, delete="later", exhausted_for="other")
    for merged in (merge_steps(plain, full), merge_steps(full, plain), merge_steps(full, later)):
        assert (merged.error, merged.delete, merged.exhausted_for) == (error, "why", "class")


@pytest.mark.parametrize(
    ("status", "message", "causes", "verdict"),
    [
        (
            500,
            "This pod has more than one PodDisruptionBudget",
            (),
            EvictionVerdict.SEVERAL_BUDGETS,
        ),
        (500, "etcd is away", (), EvictionVerdict.FAILED),
        (503, "This pod has more than one PodDisruptionBudget", (), EvictionVerdict.FAILED),
        (403, "no", (), EvictionVerdict.DENIED),
        (429, "no", ("DisruptionBudget",), EvictionVerdict.BLOCKED),
        (429, "no", (), EvictionVerdict.THROTTLED),
        (409, "no", (), EvictionVerdict.GONE),
        (404, "no", (), EvictionVerdict.GONE),
        (201, "", (), EvictionVerdict.EVICTED),
        (302, "", (), EvictionVerdict.FAILED),
        (404, 'admission webhook "w" denied the request: no', (), EvictionVerdict.DENIED),
        (429, 'admission webhook "w" denied the request: no', (), EvictionVerdict.THROTTLED),
    ],
)
def test_answers_to_evictions(status, message, causes, verdict):
    assert eviction_verdict(status, message, causes) is verdict


@pytest.mark.parametrize("missing", [INSTANCE_TYPE, ZONE, CAPACITY_TYPE])
def test_an_offering_that_the_labels_do_not_name_is_none(missing):
    labels = {INSTANCE_TYPE: "m-4x", ZONE: "a", CAPACITY_TYPE: "spot"}
    assert len(_own_offering(claim(metadata={"labels": labels}))) == 1
    labels.pop(missing)
    assert _own_offering(claim(metadata={"labels": labels})) == ()


def test_only_a_share_is_limited_to_a_hundred():
    assert UnhealthyLimit.parse("150").allowed_of(1000) == 150
    assert not UnhealthyLimit.parse("100").is_everything
    assert UnhealthyLimit.parse("100%").is_everything
    assert not UnhealthyLimit.parse("99%").is_everything
    with pytest.raises(BadInputError):
        UnhealthyLimit.parse("101%")


def test_resources_that_a_claim_does_not_expect_are_no_lack_of_its_node():
    made = node_claim("web")
    spec = made.spec.model_copy(
        update={"resources": made.spec.resources.model_copy(update={"requests": REQUESTS})}
    )
    status = made.status.model_copy(update={"capacity": {"cpu": "4", "memory": "8Gi"}})
    wants = made.model_copy(update={"spec": spec, "status": status})
    held = node("n", capacity={"cpu": "4", "memory": "1Gi"})
    assert [text.partition(" of ")[2].split(",")[0] for text in shape_issues(wants, held)] == [
        "resource memory"
    ]


REQUESTS = {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1", "example.com/none": "0"}


@pytest.mark.parametrize("value", [True, "x", None])
def test_a_truth_is_no_quantity(value):
    with pytest.raises(TypeError):
        _amount(value)


@pytest.mark.parametrize("arguments", [(1,), (None,), ("1.2.3", 1), ("1.2.3", "yes")])
def test_a_semantic_version_is_a_text_and_perhaps_a_truth(arguments):
    with pytest.raises(TypeError):
        _semver(*arguments)


@pytest.mark.parametrize("values", [("-1",), ("x",), ("1", "2"), ()])
def test_a_bound_is_one_number_that_is_not_negative(values):
    assert _value_error("example.com/size", "Gt", values)
    assert not _value_error("example.com/size", "Gt", ("0",))


@pytest.mark.parametrize(
    ("first", "second", "is_conflict"),
    [
        ((80, "TCP", ""), (80, "TCP", "10.0.0.1"), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "0.0.0.0"), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.1"), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.2"), False),
        ((80, "TCP", ""), (80, "UDP", ""), False),
        ((80, "TCP", ""), (81, "TCP", ""), False),
    ],
)
def test_ports_of_one_number_protocol_and_address_exclude_each_other(first, second, is_conflict):
    one, other = (
        HostPort(port=port, protocol=protocol, ip=address)
        for port, protocol, address in (first, second)
    )
    assert ports_conflict(one, other) is is_conflict


BOUNDED = Requirement.of("size", "Gt", ["4"])


@pytest.mark.parametrize(
    ("operator", "values", "is_guaranteed"),
    [
        ("Gt", ["3"], True), ("Gt", ["4"], True), ("Gt", ["5"], False), ("Lt", ["9"], False),
        ("Exists", [], True), ("In", ["7"], False), ("NotIn", ["3"], True), ("NotIn", ["7"], False),
    ],
)  # fmt: skip
def test_a_lower_bound_guarantees_lower_ones_and_what_it_excludes(operator, values, is_guaranteed):
    assert BOUNDED.guarantees(Requirement.of("size", operator, values)) is is_guaranteed


@pytest.mark.parametrize(
    ("operator", "values", "is_guaranteed"),
    [("Lt", ["5"], True), ("Lt", ["4"], True), ("Lt", ["3"], False), ("Gt", ["1"], False)],
)
def test_an_upper_bound_guarantees_higher_ones(operator, values, is_guaranteed):
    bounded = Requirement.of("size", "Lt", ["4"])
    assert bounded.guarantees(Requirement.of("size", operator, values)) is is_guaranteed


def test_a_mistyped_label_suggests_the_one_with_its_name():
    known = ["topology.kubernetes.io/zone", "kubernetes.io/arch"]
    assert _suggest("zone", known) == known[0]
    assert _suggest("topology.k8s.io/zone", known) == known[0]
    assert _suggest("topology.k8s.io/", known) == ""
    assert _suggest("example.com/other", known) == ""


def test_nothing_goes_into_what_is_overdrawn():
    assert fits({"cpu": 1}, {"cpu": 1})
    assert fits({}, {"cpu": 0})
    assert not fits({}, {"cpu": -1})
    assert not fits({"cpu": 1}, {"cpu": 2, "memory": -1})
    assert not fits({"gpu": 1}, {"cpu": 2})


@pytest.mark.parametrize("text", ["x=1", "1=x", "1", "=", "0=1,x=2"])
def test_places_that_cannot_be_read_are_none(text):
    assert parse_pods(text) == {}
    assert parse_pods("0=3,2=1") == {0: 3, 2: 1}


@pytest.mark.parametrize("nodes", ["٣", "٣%", "x%", "%", "", "-1"])
def test_a_budget_that_is_no_number_of_nodes_is_refused(nodes):
    with pytest.raises(BadInputError):
        allowed_by(Budget.model_construct(nodes=nodes, schedule=None, duration=None), 10, EPOCH)


@pytest.mark.parametrize(
    ("key", "operator", "value", "is_match"),
    [
        ("metadata.name", "In", "node-1", True),
        ("metadata.name", "In", "other", False),
        ("metadata.name", "NotIn", "node-1", False),
        ("metadata.uid", "In", "node-1", False),
    ],
)
def test_a_field_of_a_node_is_its_name(key, operator, value, is_match):
    field = NodeSelectorRequirement(key=key, operator=operator, values=(value,))
    node = DeviceNode(requirements=Requirements(), name="node-1", may_narrow=False)
    assert node_terms_match((NodeSelectorTerm(match_fields=(field,)),), node) is is_match


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("٣", None), ("soon", None), ("", None), ("-1", None)]
)
def test_a_time_to_wait_is_a_number_of_seconds(header, seconds):
    response = ApiResponse(status=503, headers={"retry-after": header}, body=b"{}")
    waits = error_of(response, "list pods").retry_after
    assert (waits and waits.total_seconds()) == seconds


@pytest.mark.parametrize(
    "header", ["", "soon", "Mon, 99 Mar 2026 10:00:00 GMT", "Mon, 02 Mar 99999 10:00:00 GMT"]
)
def test_a_date_that_cannot_be_read_says_nothing(header):
    assert _parse_date(header) is None


def test_an_empty_kubeconfig_has_no_fields(tmp_path):
    file = tmp_path / "config"
    file.write_text("", "utf-8")
    assert _read_document(str(file)) == {}
    file.write_text("- a\n", "utf-8")
    with pytest.raises(SettingsError, match="not a kubeconfig"):
        _read_document(str(file))


@pytest.mark.parametrize(
    ("labels", "capacity_type"),
    [
        ({CAPACITY_TYPE: "reserved", "x": "spot"}, "reserved"),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, "spot"),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, "on-demand"),
        ({}, "on-demand"),
    ],
)
def test_the_capacity_type_of_another_autoscalers_node(labels, capacity_type):
    assert _capacity_type(labels) == capacity_type


@pytest.mark.parametrize(("excluded", "value"), [(["5"], ""), ([], "5")])
def test_no_value_lies_between_bounds_that_leave_none(excluded, value):
    between = Requirement.of("size", "Gt", ["4"]).intersection(Requirement.of("size", "Lt", ["6"]))
    assert between.intersection(Requirement.of("size", "NotIn", excluded)).any_value() == value


@pytest.mark.parametrize("text", ["not json", "[]", "5", '{"claim": 5}'])
def test_places_in_a_status_that_cannot_be_read_are_none(text):
    (key,) = places_details({"claim": {0: 3}})
    assert parse_places(places_details({"claim": {0: 3}})) == {"claim": {0: 3}}
    assert not any(parse_places({key: text}).values())


@pytest.mark.parametrize(
    ("changes", "is_served", "why"),
    [
        ({"metadata": {"deletion_timestamp": EPOCH}}, True, "it is being deleted"),
        ({"spec": {"replicas": 0}}, True, "it is static"),
        ({}, False, "no loaded provider serves"),
        ({}, True, "is sold out"),
    ],
)
def test_a_pool_says_why_it_is_not_used(monkeypatch, changes, is_served, why):
    monkeypatch.setattr(unusable_pools, "_why_unready", lambda _: "")
    pool = node_pool("web")
    for part, update in changes.items():
        changed = getattr(pool, part).model_copy(update=update)
        pool = pool.model_copy(update={part: changed})
    snapshot = SimpleNamespace(manages=lambda _: is_served)
    assert _why_unusable(pool, snapshot, "is sold out").startswith(why)


@pytest.mark.parametrize("missing", ["command", "apiVersion"])
@pytest.mark.parametrize("value", [None, "", 5], ids=["none", "empty", "number"])
def test_a_credential_plug_in_has_a_command_and_a_version(missing, value):
    settings = {"command": "get-token", "apiVersion": "client.authentication.k8s.io/v1"}
    ExecPlugin(settings, clock=TwoClocks())
    if value == "":
        del settings[missing]
    else:
        settings[missing] = value
    with pytest.raises(SettingsError, match=f"exec: {missing} is missing"):
        ExecPlugin(settings, clock=TwoClocks())


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True), (False, False)])
def test_an_owner_reference_has_the_flags_of_its_owner(flags):
    controller, blocks = flags
    owner = OwnerView(
        api_version="v1",
        kind="Node",
        name="n",
        uid="u",
        controller=controller,
        block_owner_deletion=blocks,
    )
    written = _owner_json(owner)
    assert (written.get("controller"), written.get("blockOwnerDeletion")) == (
        controller or None,
        blocks or None,
    )


@pytest.mark.parametrize(
    ("namespaces", "text"),
    [
        (None, "all pods in any namespace"),
        (frozenset({"default"}), "all pods"),
        (frozenset(), "all pods in no namespace"),
        (frozenset({"b", "a"}), "all pods in namespaces a, b"),
    ],
)
def test_a_group_says_in_which_namespaces_it_counts_pods(namespaces, text):
    everything = SimpleNamespace(labels=(), expressions=())
    pods = SimpleNamespace(selector=everything, namespaces=namespaces)
    assert _filter_text("default", pods) == text
    assert _filter_text("default", SimpleNamespace(selector=None, namespaces=None)) == "no pods"
