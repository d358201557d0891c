"""Parts of conditions, choices and defaults of the state that decide in rare clusters only."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import ALIASES, TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import INSTANCE_TERMINATING
from karpenter_core.api.records import NodeSelectorRequirement, NodeSelectorTerm
from karpenter_core.errors import OfferingKey
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.events import NodesNominated, OfferingsUnavailable, TimePassed
from karpenter_core.state.existing_nodes import selects_node
from karpenter_core.state.launch_ceilings import LaunchCeilings
from karpenter_core.state.launch_limits import LaunchLimits
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.state.state_nodes import is_kept_by_others
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_pool,
    node_term,
    offering,
    pod,
    pod_shape,
)
from karpenter_core.testing.state_builders import (
    disruption_budget,
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
    with_claim_conditions,
)
from tests.state.test_capacity_quotas import planned_claims, quota
from tests.state.test_problem import POOL, daemon_set
from tests.support.pool_windows import hours, with_windows

MINUTE = timedelta(minutes=1)


def static_claim(*types, **options):
    pool = node_pool(replicas=1)
    snapshot = synced_state(
        ready_node_pool(pool), catalogues={pool.name: catalogue(*types)}
    ).snapshot()
    found = plan_static_claim(
        snapshot, pool, aliases=ALIASES, well_known=frozenset(), solve=SolveOptions(**options)
    )
    return found.cheapest.instance_type, found.cheapest.price_per_hour


def sold(name, price, currency="USD"):
    return instance_type(name, offerings=[offering(price=price, currency=currency)])


def test_offers_in_other_currencies_are_compared_at_their_rates():
    """10 CNY are 1.50 USD, and 8 EUR are 8.80."""
    types = [sold("a", 2.0), sold("b", 10.0, "CNY"), sold("c", 8.0, "EUR")]
    assert static_claim(*types, exchange_rates={"CNY": 0.15, "EUR": 1.1}) == ("b", 1.5)


def test_an_offer_without_a_rate_costs_nothing_that_is_known():
    assert static_claim(sold("b", 10.0, "CNY")) == ("b", 0.0)


def test_one_of_several_terms_selects_a_node():
    terms = [node_term(("size", "In", "huge")), node_term(("team", "In", "web"))]
    shape = pod_shape(required=terms)
    assert selects_node(shape, "a", {"team": "web"}, ALIASES)
    assert not selects_node(shape, "a", {"team": "db"}, ALIASES)


@pytest.mark.parametrize(
    "term",
    [
        (("team", "In", "web"), ("team", "DoesNotExist")),
        (("team", "In", "web"), ("team", "In", "db")),
        (("size", "Gt", "5"), ("size", "Lt", "3")),
    ],
)
def test_a_term_that_excludes_itself_selects_no_node(term):
    shape = pod_shape(required=[node_term(*term)])
    assert not selects_node(shape, "a", {}, ALIASES)
    assert not selects_node(shape, "a", {"team": "web"}, ALIASES)


def test_a_daemon_runs_on_every_new_node_if_one_of_its_terms_only_excludes_a_name():
    """The other term wants a label; a new node has no name yet, so the first is met by each."""
    not_web = NodeSelectorRequirement(key="metadata.name", operator="NotIn", values=("web",))
    terms = [NodeSelectorTerm(match_fields=(not_web,)), node_term(("size", "In", "huge"))]
    shape = pod_shape(cpu="1", owner_kind="DaemonSet", required=terms)
    (daemon,) = build_provisioning_input(
        synced_state(POOL, daemon_set(shape=shape)).snapshot(), now=EPOCH
    ).problem.daemons
    assert daemon.shape.required_node_terms == ()


def test_the_next_edge_of_schedules_is_the_earliest_of_all_pools():
    pools = [
        with_windows(ready_node_pool(node_pool(name)), hours(start=start, limits={"cpu": "40"}))
        for name, start in (("early", "0 8 * * *"), ("late", "0 20 * * *"))
    ]
    assert synced_state(*pools).next_schedule_edge == EPOCH + timedelta(hours=8)


@pytest.mark.parametrize(("finalizers", "kept"), [((), True), ((TERMINATION_FINALIZER,), False)])
def test_a_claim_is_kept_by_others_once_all_of_its_nodes_are_released(finalizers, kept):
    claim = with_claim_conditions(
        node_claim("a", stage="Initialized", deleted=EPOCH), INSTANCE_TERMINATING, now=EPOCH
    )
    released = node("a", claim=claim, deleted=EPOCH, finalizers=())
    other = node("b", claim=claim, deleted=EPOCH, finalizers=finalizers)
    assert is_kept_by_others(claim, [released, other]) is kept


def test_a_node_is_nominated_until_the_later_end_of_its_names():
    """Pods may be expected on the claim and, later, on its node."""
    view, claim = node_and_claim("web-1")
    view = msgspec.structs.replace(view, name="ip-1")
    builder = synced_state(view, claim)
    builder.apply_event(NodesNominated(names=("web-1",), until=EPOCH + 2 * MINUTE))
    builder.apply_event(NodesNominated(names=("ip-1",), until=EPOCH + MINUTE))
    (state_node,) = builder.snapshot().state_nodes
    assert state_node.nominated_until == EPOCH + 2 * MINUTE


def test_an_offering_is_masked_until_the_last_shortage_of_it_ends():
    """A shortage of all NodeClasses, and a later one of this NodeClass."""
    builder = synced_state(ready_node_pool(node_pool()))
    whole = _available(builder)
    mask = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="spot")
    for node_class, at in (("default", EPOCH + MINUTE), ("", EPOCH)):
        builder.apply_event(
            OfferingsUnavailable(offerings=(mask,), provider="kwok", at=at, node_class=node_class)
        )
    builder.apply_event(TimePassed(EPOCH + 3 * MINUTE))
    assert _available(builder) == whole - 1
    builder.apply_event(TimePassed(EPOCH + 4 * MINUTE))
    assert _available(builder) == whole


def _available(builder):
    types = builder.snapshot().catalogues["default"].instance_types
    return sum(offering.available for each in types for offering in each.offerings)


@pytest.mark.parametrize(
    "objects",
    [
        [ready_node_pool(node_pool(limits={"nvidia.com/gpu": "0"}))],
        [ready_node_pool(node_pool()), quota(**{"nvidia.com/gpu": "0"})],
    ],
    ids=["of a NodePool", "of a CapacityQuota"],
)
def test_a_limit_on_what_a_claim_does_not_have_leaves_it_alone(objects):
    """Of GPUs nothing is left, and the claim has none."""
    (claim,) = planned_claims(1)
    limits = LaunchLimits()
    snapshot = synced_state(*objects).snapshot()
    checked = LaunchCeilings(snapshot, limits, in_flight=(), leaving=())
    assert checked.refusal(claim) is None
    assert "nvidia.com/gpu" not in claim.capacity_max


@pytest.mark.parametrize(
    ("healthy", "desired", "is_blocked"), [(1, 1, False), (0, 1, True), (0, 0, True)]
)
def test_an_unready_pod_may_go_while_its_budget_is_healthy(healthy, desired, is_blocked):
    """One healthy pod of one is enough; of none, nothing is known."""
    waiting = msgspec.structs.replace(pod("web", node_name="a", phase="Running"), ready=False)
    budgets = PodBudgets([disruption_budget(healthy=healthy, desired=desired)])
    assert bool(budgets.blocking(waiting, EPOCH)) is is_blocked
