"""One claim is launched from the cheapest offering that has capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import FALSE, READY, TRUE, Condition
from karpenter_core.api.labels import NODE_POOL, ON_DEMAND, REGION, SPOT, WELL_KNOWN, ZONE
from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, RequirementSpec, TaintSpec
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    NodeClassNotReadyError,
    OfferingKey,
    QuotaGroup,
    ThrottledError,
)
from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.contract import Instance, LaunchRequest
from karpenter_core.provider.kit.instance_types import GIB, build_instance_type, zone_offering
from karpenter_core.provider.kit.launch.cheapest import (
    cheapest_offerings,
    create_in_order,
    launch_cheapest,
)
from karpenter_core.provider.kit.node_registration import (
    registration_labels,
    registration_taints,
    taints_text,
)
from karpenter_core.provider.kit.refreshed_value import RefreshedValue
from karpenter_provider_kwok.api import KWOKNodeClass

PRICES = {("small", "a"): 1.0, ("small", "b"): 2.0, ("large", "a"): 3.0}


def instance_types():
    return tuple(
        build_instance_type(
            name,
            arch="amd64",
            offerings=[
                zone_offering(zone, Price(price, "EUR"))
                for (of, zone), price in PRICES.items()
                if of == name
            ],
            capacity={"cpu": 2000, "memory": 8 * GIB, "pods": 110},
        )
        for name in ("large", "small")
    )


def request(*, status=TRUE, requirements=(), **spec):
    claim = NodeClaim(
        metadata=ObjectMeta(name="claim", uid="uid", labels={"team": "web"}),
        spec=NodeClaimSpec(
            node_class_ref={"group": "g", "kind": "K", "name": "default"},
            requirements=requirements,
            **spec,
        ),
    )
    node_class = KWOKNodeClass(metadata=ObjectMeta(name="default"))
    ready = Condition(type=READY, status=status, reason="Reason", message="text")
    state = node_class.status.model_copy(update={"conditions": (ready,)})
    return LaunchRequest(
        node_claim=claim,
        node_class=node_class.model_copy(update={"status": state}),
        instance_types=instance_types(),
    )


class Cloud:
    """A cloud in which some offerings are sold out; `calls` are the offerings that were tried."""

    def __init__(self, errors=None):
        self.errors, self.calls = errors or {}, []

    def create(self, key):
        self.calls.append((key.instance_type, key.zone))
        if error := self.errors.get(self.calls[-1]):
            raise error
        return Instance(
            provider_id="cloud://1",
            instance_type=key.instance_type,
            zone=key.zone,
            capacity_type=key.capacity_type,
            labels={"rack": "7"},
        )


def key(instance_type, zone):
    return OfferingKey(instance_type=instance_type, zone=zone, capacity_type=ON_DEMAND)


def test_the_cheapest_offering_is_launched():
    cloud = Cloud()
    outcome = launch_cheapest(request(), cloud.create)
    assert cloud.calls == [("small", "a")]
    assert (outcome.instance_type, outcome.zone, outcome.shortages) == ("small", "a", ())
    assert outcome.allocatable["cpu"] < outcome.capacity["cpu"] == 2000
    assert outcome.labels["rack"] == "7"
    assert outcome.labels[ZONE] == "a"


def test_the_next_offering_follows_a_shortage_and_the_outcome_reports_it():
    cloud = Cloud({("small", "a"): InsufficientCapacityError("none")})
    outcome = launch_cheapest(request(), cloud.create)
    assert cloud.calls == [("small", "a"), ("small", "b")]
    (shortage,) = outcome.shortages
    assert shortage.offerings == (key("small", "a"),)
    assert shortage.scope is ExhaustedScope.OFFERING


def test_a_claim_for_which_nothing_is_left_names_the_offerings_tried():
    cloud = Cloud(dict.fromkeys(PRICES, InsufficientCapacityError("none")))
    with pytest.raises(InsufficientCapacityError, match="small in b") as raised:
        launch_cheapest(request(), cloud.create)
    assert raised.value.offerings == tuple(key(*each) for each in PRICES)


@pytest.mark.parametrize(
    "scope", [each for each in ExhaustedScope if each is not ExhaustedScope.OFFERING]
)
def test_a_wider_shortage_ends_the_launch_with_its_own_offering_alone(scope):
    """An offering that was tried before it must not widen what becomes unavailable."""
    cloud = Cloud(
        {
            ("small", "a"): InsufficientCapacityError("none"),
            ("small", "b"): InsufficientCapacityError("full", scope=scope),
        }
    )
    with pytest.raises(InsufficientCapacityError, match="full") as raised:
        launch_cheapest(request(), cloud.create)
    assert (raised.value.scope, raised.value.offerings) == (scope, (key("small", "b"),))
    assert len(cloud.calls) == 2


def test_a_shortage_with_quota_groups_is_raised_as_it_is():
    error = InsufficientCapacityError("quota", quota_groups=[QuotaGroup(capacity_type=SPOT)])
    with pytest.raises(InsufficientCapacityError) as raised:
        launch_cheapest(request(), Cloud({("small", "a"): error}).create)
    assert raised.value is error


def launch_in_order(cloud, *, is_open=lambda _it, _offering: True):
    made = request()
    return create_in_order(
        made,
        reversed(cheapest_offerings(made)),
        lambda it, offering: cloud.create(key(it.name, offering.zone)),
        is_open=is_open,
    )


def test_offerings_are_tried_in_the_order_that_the_cloud_gives():
    created, shortages = launch_in_order(Cloud())
    assert (created.instance_type, created.zone, shortages) == ("large", "a", ())


def test_after_an_exceeded_quota_the_next_open_offering_is_tried():
    """The cloud has recorded the quota, which covers one more offering than the one that met it."""
    group = QuotaGroup(label=ZONE, value="a")
    cloud = Cloud({("large", "a"): InsufficientCapacityError("quota of a", quota_groups=[group])})
    created, (shortage,) = launch_in_order(
        cloud, is_open=lambda _, offering: not cloud.calls or offering.zone != "a"
    )
    assert cloud.calls == [("large", "a"), ("small", "b")]
    assert created.zone == "b"
    assert (shortage.quota_groups, shortage.offerings) == ((group,), ())


def test_a_launch_that_finds_everything_exceeded_reports_all_of_it():
    groups = {each: QuotaGroup(label="size", value=str(n)) for n, each in enumerate(PRICES)}
    cloud = Cloud(
        {
            each: InsufficientCapacityError(f"quota {group.value}", quota_groups=[group])
            for each, group in groups.items()
        }
    )
    cloud.errors["small", "b"] = InsufficientCapacityError("none")
    with pytest.raises(InsufficientCapacityError, match="small in b; quota 2; quota 0") as raised:
        launch_in_order(cloud)
    assert raised.value.scope is ExhaustedScope.OFFERING
    assert raised.value.offerings == (key("small", "b"),)
    assert set(raised.value.quota_groups) == {groups["small", "a"], groups["large", "a"]}


def test_a_launch_without_an_open_offering_makes_no_call_and_names_those_that_are_closed():
    cloud = Cloud()
    with pytest.raises(InsufficientCapacityError) as raised:
        launch_in_order(cloud, is_open=lambda _it, _offering: False)
    assert cloud.calls == []
    assert set(raised.value.offerings) == {key(*each) for each in PRICES}


def test_a_wider_scope_ends_a_launch_in_order():
    error = InsufficientCapacityError("full", scope=ExhaustedScope.ZONE)
    cloud = Cloud({("large", "a"): error})
    with pytest.raises(InsufficientCapacityError, match="full") as raised:
        launch_in_order(cloud)
    assert (raised.value.scope, len(cloud.calls)) == (ExhaustedScope.ZONE, 1)


def test_any_other_error_ends_the_launch():
    cloud = Cloud({("small", "a"): ThrottledError("slow down")})
    with pytest.raises(ThrottledError):
        launch_cheapest(request(), cloud.create)
    assert len(cloud.calls) == 1


def test_a_claim_gets_only_an_offering_that_its_requirements_allow():
    cloud = Cloud()
    zone = RequirementSpec(key=ZONE, operator="In", values=("b",))
    launch_cheapest(request(requirements=(zone,)), cloud.create)
    assert cloud.calls == [("small", "b")]


def test_a_node_class_that_is_not_ready_launches_nothing():
    cloud = Cloud()
    with pytest.raises(NodeClassNotReadyError):
        launch_cheapest(request(status=FALSE), cloud.create)
    assert cloud.calls == []


def test_an_instance_of_an_earlier_call_counts_with_any_offering():
    there = replace(Cloud().create(key("large", "a")), image_id="old")
    outcome = launch_cheapest(request(), lambda _: there)
    assert (outcome.instance_type, outcome.zone, outcome.image_id) == ("large", "a", "old")


def test_an_instance_of_a_type_that_was_not_requested_is_an_error():
    there = Cloud().create(key("huge", "a"))
    with pytest.raises(CloudProviderError, match="huge"):
        launch_cheapest(request(), lambda _: there)


def test_a_built_type_defines_every_well_known_label():
    own = "cloud.example.com/family"
    built = build_instance_type(
        "m",
        arch="arm64",
        offerings=[zone_offering("b", Price(1)), zone_offering("a", Price(1), capacity_type=SPOT)],
        capacity={"cpu": 2000, "memory": GIB, "pods": 10},
        labels={REGION: "north"},
        well_known=[own],
    )
    assert set(dict(built.requirements.items())) == (WELL_KNOWN - {NODE_POOL}) | {own}
    assert [each.zone for each in built.offerings] == ["a", "b"]
    assert built.requirements.get(own).operator == "DoesNotExist"
    assert built.requirements.get(REGION).values == {"north"}


def test_a_kubelet_registers_with_the_taints_of_the_claim():
    taint = TaintSpec(key="team", value="web", effect="NoSchedule")
    claim = request(taints=(taint,), startup_taints=(TaintSpec(key="s", effect="NoExecute"),))
    assert [each["key"] for each in registration_taints(claim.node_claim)] == [
        "karpenter.sh/unregistered",
        "team",
        "s",
    ]
    assert taints_text(claim.node_claim) == (
        "karpenter.sh/unregistered=:NoExecute,team=web:NoSchedule,s=:NoExecute"
    )
    assert registration_labels(claim.node_claim) == {"team": "web"}


def test_a_value_is_read_once_and_then_by_its_task():
    readings = iter(["first", "second"])
    value = RefreshedValue("catalogue", lambda: next(readings), period=5)
    assert (value.get(), value.get()) == ("first", "first")
    task = value.task()
    task.run()
    assert value.get() == "second"
    assert not task.leader_only
    with pytest.raises(StopIteration):
        task.run()
    assert value.get() == "second"
