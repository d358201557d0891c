"""CapacityQuotas: what is read, what counts, what is refused at the creation of claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.capacity_quota import CapacityQuota
from karpenter_core.api.labels import (
    ALIASES,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    PRICE_PER_HOUR,
    SPOT_SHARE,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.api.spot_share import OTHER_NODES, SPOT_NODES
from karpenter_core.cli.doctor.quotas import quota_findings
from karpenter_core.cli.plan_notes import quota_notes, spot_share_notes
from karpenter_core.lifecycle.capacity_quota.status import quota_status
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.capacity_quotas import launch_quotas, quota_usage, read_quota
from karpenter_core.state.launch_ceilings import LaunchCeilings
from karpenter_core.state.launch_limits import LaunchLimit, LaunchLimits, refused_pools
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod, requirement_spec
from karpenter_core.testing.state_builders import (
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
)

RATES = {"USD": 1.0}
LABELS = {"well_known": WELL_KNOWN, "aliases": ALIASES}


def quota(name="team", *, selector=None, status=None, **resources):
    limits = {PRICE_PER_HOUR if key == "price" else key: it for key, it in resources.items()}
    return CapacityQuota(
        api_version="autoscaling.x-k8s.io/v1beta1",
        kind="CapacityQuota",
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", generation=3, resource_version="7"),
        spec={"selector": selector, "limits": {"resources": limits}},
        status=status or {},
    )


def used(asked, *objects, pools=()):
    snapshot = synced_state(*(pools or (node_pool(),)), *objects).snapshot()
    return quota_usage(snapshot, read_quota(asked), RATES, **LABELS)


@pytest.mark.parametrize("amount", ["500m", "1000m", "3.67Gi", "-1", -1, "many", 1.5, True, None])
def test_an_amount_that_is_no_whole_number_cannot_be_read(amount):
    """The message names the field and the value."""
    reading = read_quota(quota(cpu=amount))

    assert reading.limits == {}
    assert "spec.limits.resources[cpu]" in reading.refusal
    assert reading.refusal.startswith('CapacityQuota "team" cannot be read: ')


@pytest.mark.parametrize(("amount", "milli"), [("32", 32000), (32, 32000), ("2k", 2_000_000)])
def test_whole_amounts_are_read(amount, milli):
    """With decimal suffixes, too."""
    assert read_quota(quota(cpu=amount)).limits == {"cpu": milli}


@pytest.mark.parametrize(
    "selector",
    [
        "all",
        {"matchLabels": ["a"]},
        {"matchLabels": {"a": 1}},
        {"matchExpressions": "a"},
        {"matchExpressions": [{"key": "a", "operator": "Like"}]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        {"matchExpressions": [{"operator": "Exists"}]},
        {"matchExpressions": ["a"]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]},
        {"matchFields": []},
    ],
)
def test_a_selector_that_cannot_be_read_refuses_with_its_field(selector):
    """Its readable part still selects."""
    reading = read_quota(quota(selector=selector, cpu="1"))

    assert reading.refusal
    assert "spec.selector" in reading.refusal


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("a", "matchExpressions[0]: must be an object, not 'a'"),
        ({"key": 7, "operator": "Exists"}, "matchExpressions[0]: key must be a label, not 7"),
        ({"key": "a", "operator": 7}, "DoesNotExist, not 7"),
        ({"key": "a", "operator": "In", "values": "b"}, "values must be a list, not 'b'"),
        ({"key": "a", "operator": "In", "values": [1]}, "In does not go with values [1]"),
        ({"key": "a", "operator": "In"}, "In does not go with values []"),
        ({"key": "a", "operator": "NotIn"}, "NotIn does not go with values []"),
        (
            {"key": "a", "operator": "DoesNotExist", "values": ["b"]},
            "DoesNotExist does not go with values ['b']",
        ),
    ],
)
def test_an_expression_that_cannot_be_read_is_named_by_its_place_and_value(expression, problem):
    reading = read_quota(quota(selector={"matchExpressions": [expression]}, cpu="1"))
    assert problem in reading.refusal


@pytest.mark.parametrize("limits", [None, "all", {"resources": ["cpu"]}, {}])
def test_limits_that_are_no_object_refuse_with_their_field(limits):
    asked = quota(cpu="1")
    asked = asked.model_copy(update={"spec": {"limits": limits}})
    assert "spec.limits.resources must be an object" in read_quota(asked).refusal


def test_a_quota_counts_nodes_of_every_origin_and_claims_without_node():
    """Of a claim that is not launched yet the largest type that it lists."""
    small = requirement_spec(INSTANCE_TYPE, "In", "m-1x", "m-2x")
    counted = used(
        quota(nodes="10", cpu="100"),
        *node_and_claim("ours"),
        node("foreign", provider_id="elsewhere://1"),
        node_claim("ordered", requirements=(small,)),
    )

    assert counted == {"nodes": 3, "cpu": 4000 + 4000 + 2000}


def test_a_quota_counts_by_labels_of_nodes():
    """Only those that it selects."""
    nodes = [*node_and_claim("ours"), node("foreign", provider_id="elsewhere://1")]

    assert used(quota(selector={"matchLabels": {NODE_POOL: "default"}}, nodes="10"), *nodes) == {
        "nodes": 1
    }
    absent = {"matchExpressions": [{"key": NODE_POOL, "operator": "DoesNotExist"}]}
    assert used(quota(selector=absent, nodes="10"), *nodes) == {"nodes": 1}


@pytest.mark.parametrize(
    ("zones", "count"), [(("zone-a",), 1), (("zone-a", "zone-b"), 1), (("zone-b",), 0)]
)
def test_a_claim_counts_in_every_zone_that_it_may_get(zones, count):
    """Until it is launched."""
    claim = node_claim("ordered", requirements=(requirement_spec(ZONE, "In", *zones),))

    assert used(quota(selector={"matchLabels": {ZONE: "zone-a"}}, nodes="10"), claim) == {
        "nodes": count
    }


def test_a_node_that_is_being_removed_counts_until_it_is_gone():
    """Its instance runs, and costs."""
    claim = node_claim("going", stage="Initialized", deleted=EPOCH)

    assert used(quota(nodes="10"), claim, node("going", claim=claim)) == {"nodes": 1}


def test_the_price_counts_for_nodes_of_pools_at_their_listed_price():
    """0.16 an hour for 4 cores of family m; nodes of others have no price."""
    nodes = [*node_and_claim("ours"), node("foreign", provider_id="elsewhere://1")]
    counted = used(quota(price="10"), *nodes)

    assert counted == {PRICE_PER_HOUR: 155_200}


def test_a_node_of_unknown_price_makes_a_quota_of_the_price_refuse():
    """Unknown is not 0."""
    nodes = node_and_claim("ours", instance_type="gone")
    snapshot = synced_state(node_pool(), quota(price="10"), *nodes).snapshot()
    (read,) = launch_quotas(snapshot, RATES, **LABELS)

    assert read.used[PRICE_PER_HOUR] == LARGEST_AMOUNT
    assert "price of a node that it counts is not known" in read.refusal


def test_a_pool_with_a_price_limit_and_a_node_of_unknown_price_launches_nothing():
    """The refusal names the node."""
    pool = node_pool(limits={PRICE_PER_HOUR: "10"})
    unpriced = synced_state(pool, *node_and_claim("odd", instance_type="gone")).snapshot()
    priced = synced_state(pool, *node_and_claim("known")).snapshot()

    refusal = refused_pools(unpriced, now=EPOCH, launch_limits=None)["default"]
    assert refusal.limit is LaunchLimit.UNKNOWN_PRICE
    assert 'the price of node "odd" is not known' in refusal.message
    assert refused_pools(priced, now=EPOCH, launch_limits=None) == {}


# -- at the creation of claims ----------------------------------------------------------------


def planned_claims(count, *objects, pool=None):
    """Plan claims of one core each without limits."""
    snapshot = synced_state(ready_node_pool(pool or node_pool()), *objects).snapshot()
    problem = build_provisioning_input(snapshot, now=EPOCH).problem
    pods = [pod(f"p-{n}", cpu="900m") for n in range(count)]
    plans = [solve(replace(problem, pods=(one,))) for one in pods]
    return [plan.claims[0] for plan in plans]


def ceilings(*objects, pool=None, in_flight=(), leaving=()):
    snapshot = synced_state(ready_node_pool(pool or node_pool()), *objects).snapshot()
    return LaunchCeilings(snapshot, LaunchLimits(), in_flight=in_flight, leaving=leaving)


def granted(claims, checked):
    count = 0
    for claim in claims:
        if checked.refusal(claim) is None:
            checked.count(claim)
            count += 1
    return count


def test_claims_in_flight_count_against_a_quota():
    """The API server has not answered their creation."""
    claims = planned_claims(4)

    assert granted(claims, ceilings(quota(nodes="3"))) == 3
    assert granted(claims[1:], ceilings(quota(nodes="3"), in_flight=claims[:1])) == 2


def test_a_refusal_names_the_quota_and_the_resource():
    """It becomes the reason of the pods' Event."""
    refusal = ceilings(quota(nodes="0")).refusal(planned_claims(1)[0])

    assert refusal is not None
    assert refusal.limit is LaunchLimit.CAPACITY_QUOTA
    assert refusal.message == 'CapacityQuota "team" has 0 of nodes left, which is too little'


def test_a_quota_that_cannot_be_read_refuses_the_claims_that_it_may_count():
    """Those that its selector leaves out are created."""
    (claim,) = planned_claims(1)
    refusal = ceilings(quota(nodes="many")).refusal(claim)

    assert refusal is not None
    assert refusal.limit is LaunchLimit.CAPACITY_QUOTA
    assert refusal.message.startswith('CapacityQuota "team" cannot be read')
    elsewhere = {"matchLabels": {"karpenter.sh/nodepool": "other"}}
    assert ceilings(quota(selector=elsewhere, nodes="many")).refusal(claim) is None


def test_a_limit_of_a_pool_counts_the_claim_to_create():
    """Not only what exists."""
    claims = planned_claims(1)
    most = max(claims[0].capacity_max["cpu"], 1000) // 1000

    tight, wide = (node_pool(limits={"cpu": str(cpu)}) for cpu in (most - 1, most))
    assert ceilings(pool=tight).refusal(claims[0]) is not None
    assert ceilings(pool=wide).refusal(claims[0]) is None


@pytest.mark.parametrize(
    "pool",
    [
        node_pool("other", limits={"nodes": "0"}),
        node_pool(limits={}),
        node_pool(limits={"nodes": "0"}, replicas=1),
    ],
    ids=["no such pool", "without limits", "static"],
)
def test_only_the_limits_of_a_dynamic_pool_that_exists_are_counted_at_creation(pool):
    """The limit of a static NodePool is counted with its replicas; quotas hold for each of them."""
    (claim,) = planned_claims(1)
    assert ceilings(pool=pool).refusal(claim) is None
    assert ceilings(quota(nodes="0"), pool=pool).refusal(claim) is not None


def test_replaced_claims_do_not_count_for_the_limits_of_their_pool():
    """They count for quotas until they are gone."""
    pool = node_pool(limits={"nodes": "1"})
    (claim,) = planned_claims(1)
    nodes = node_and_claim("old")

    assert ceilings(*nodes, pool=pool).refusal(claim) is not None
    assert ceilings(*nodes, pool=pool, leaving={"old"}).refusal(claim) is None
    assert ceilings(*nodes, quota(nodes="1"), leaving={"old"}).refusal(claim) is not None


# -- status, doctor, plan ---------------------------------------------------------------------


def test_the_status_keeps_conditions_of_others_and_is_written_once():
    """Cluster Autoscaler has a condition of its own."""
    theirs = {"type": "cluster-autoscaler.kubernetes.io/valid", "status": "True"}
    asked = quota(nodes="10", status={"conditions": [theirs]})
    reading = read_quota(asked)
    status = quota_status(asked, reading, {"nodes": 2}, now=EPOCH)

    assert status.patch is not None
    body = status.patch.body["status"]
    assert body["used"] == {"resources": {"nodes": "2"}}
    assert body["conditions"][0] == theirs
    own = body["conditions"][1]
    assert (own["type"], own["status"], own["reason"]) == (
        "Reconciled",
        "True",
        "ReconciliationSucceeded",
    )
    written = asked.model_copy(update={"status": body})
    assert quota_status(written, reading, {"nodes": 2}, now=EPOCH).patch is None


def test_a_resource_that_a_quota_does_not_limit_any_more_leaves_its_status():
    """A merge patch keeps what it does not name."""
    before = {"used": {"resources": {"cpu": "8", "nodes": "2", "memory": "1Gi"}}}
    asked = quota(nodes="10", status=before)
    status = quota_status(asked, read_quota(asked), {"nodes": 2}, now=EPOCH)

    assert status.patch is not None
    used = status.patch.body["status"]["used"]
    assert used == {"resources": {"nodes": "2", "cpu": None, "memory": None}}


def test_doctor_reports_quotas_that_nothing_can_satisfy():
    """A limit of 0, one that is exceeded, and one that cannot be read."""
    exceeded = {"used": {"resources": {"cpu": "12"}}}
    texts = [
        finding.message
        for one in (quota(nodes="0"), quota(cpu="8", status=exceeded), quota(cpu="1.5"))
        for finding in quota_findings(one.model_dump(by_alias=True, mode="json"))
    ]

    assert texts[0] == 'CapacityQuota "team" allows 0 of nodes, which no node can satisfy'
    assert texts[1] == 'CapacityQuota "team" allows 8 of cpu, and 12 is in use'
    assert "cannot be read" in texts[2]
    assert quota_findings(quota(cpu="8").model_dump(by_alias=True, mode="json")) == []


def test_a_plan_notes_quotas_that_are_used_up():
    """Beside the reasons of pods."""
    snapshot = synced_state(
        node_pool(), quota("full", nodes="1"), quota("free", nodes="9"), *node_and_claim("a")
    ).snapshot()

    assert quota_notes(launch_quotas(snapshot, RATES, **LABELS)) == (
        'CapacityQuota "full" is used up (nodes: 1 of 1); no node is planned that it counts',
    )


def test_labels_of_capacity_types_select_claims_that_may_be_spot():
    """A claim that leaves it open counts."""
    spot = {"matchLabels": {CAPACITY_TYPE: "spot"}}
    open_claim = node_claim("open")
    on_demand = node_claim(
        "fixed", requirements=(requirement_spec(CAPACITY_TYPE, "In", "on-demand"),)
    )

    assert used(quota(selector=spot, nodes="5"), open_claim, on_demand) == {"nodes": 1}


def test_a_plan_notes_the_share_of_spot():
    """With the nodes that count for it."""
    pool = node_pool()
    metadata = pool.metadata.model_copy(update={"annotations": {SPOT_SHARE: "50%"}})
    shared = ready_node_pool(pool.model_copy(update={"metadata": metadata}))
    snapshot = synced_state(
        shared, *node_and_claim("a", capacity_type="spot"), *node_and_claim("b")
    ).snapshot()
    problem = build_provisioning_input(snapshot, now=EPOCH).problem

    assert problem.pool_usage["default"][SPOT_NODES] == 1
    assert problem.pool_usage["default"][OTHER_NODES] == 1
    assert spot_share_notes(problem) == (
        'nodepool "default" has a spot share of 50%: 1 of its 2 nodes is spot before this plan',
    )
