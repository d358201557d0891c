"""Pods with ResourceClaims get nodes that have the devices (acceptance cases 350 to 362)."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest

from karpenter_core.api.devices import (
    AttributeBinding,
    ClaimConsumer,
    DeviceCapacity,
    DeviceTaint,
    DeviceToleration,
)
from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, NODES, PRICE_PER_HOUR, SPOT_SHARE
from karpenter_core.scheduling.devices import pod_claims
from karpenter_core.scheduling.devices.pools import DeviceNode, PublishedPools
from karpenter_core.scheduling.devices.requests import (
    MAX_DEVICES_PER_CLAIM,
    DeviceRefusal,
    read_claim,
)
from karpenter_core.scheduling.problem import LaunchQuota, PoolConstraint
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    pod,
    problem,
)
from tests.scheduling.acceptance.workloads import TEST, spread
from tests.scheduling.devices.builders import (
    CLASS,
    DRIVER,
    ZONE,
    allocated,
    claim,
    counter_set,
    device,
    device_class,
    device_pod,
    devices_of,
    first_available,
    gpu_type,
    gpus,
    inventory,
    planned,
    reason,
    request,
    resource_slice,
)
from tests.verifier import violations

PLAIN = gpu_type("a-plain")
ONE = gpu_type("b-one", devices_of(*gpus(1)))
TWO = gpu_type("c-two", devices_of(*gpus(2)))
TYPES = (PLAIN, ONE, TWO)


def types_of(plan):
    (made,) = plan.claims
    return set(made.instance_types)


def zones_of(plan):
    (made,) = plan.claims
    return {value for one in made.requirements if one.key == ZONE for value in one.values}


def gpu_node(name="node-1", **fields):
    return existing_node(name, pool="default", **fields)


# -- 350, 351, 352: one claim each -----------------------------------------------------------------


def test_pods_with_claims_are_refused_and_others_placed_while_devices_are_ignored():
    asked = problem([device_pod("p", "gpu"), pod("q")], catalogue=catalogue(*TYPES))
    plan = solve(asked)
    assert "not yet supported" in reason(plan, "p")
    assert [one.name for made in plan.claims for one in made.pods] == ["q"]


def test_a_claim_lists_only_types_with_the_device_and_names_the_driver():
    plan = planned([device_pod("p", "gpu")], TYPES, claim("gpu"))
    assert types_of(plan) == {"b-one", "c-two"}
    assert plan.claims[0].device_drivers == (DRIVER,)


def test_a_claim_of_other_pods_names_no_driver():
    plan = planned([pod("p")], TYPES)
    assert plan.claims[0].device_drivers == ()


def test_a_generated_claim_is_named_by_the_pods_status():
    plan = planned([device_pod("p", templates={"gpu": "p-gpu-x1"})], TYPES, claim("p-gpu-x1"))
    assert types_of(plan) == {"b-one", "c-two"}


def test_pods_without_claims_share_the_nodes_of_pods_with_devices():
    plan = planned([device_pod("p", "gpu"), pod("q")], TYPES, claim("gpu"))
    (made,) = plan.claims
    assert {one.name for one in made.pods} == {"p", "q"}
    assert made.requests["pods"] == 2
    assert made.requests["cpu"] == 200


def test_pods_share_a_claim_while_its_devices_last():
    claims = [claim(f"gpu-{n}") for n in range(3)]
    plan = planned([device_pod(f"p-{n}", f"gpu-{n}") for n in range(3)], TYPES, *claims)
    assert [len(one.pods) for one in plan.claims] == [2, 1]
    assert plan.claims[0].instance_types == ("c-two",)
    assert set(plan.claims[1].instance_types) == {"b-one", "c-two"}


# -- 353: All, matchAttribute, firstAvailable ------------------------------------------------------


def test_all_mode_takes_every_matching_device():
    claims = claim("every", request(count=None)), claim("one")
    plan = planned([device_pod("p", "every"), device_pod("q", "one")], [TWO], *claims)
    assert [len(one.pods) for one in plan.claims] == [1, 1]


def test_all_mode_needs_a_matching_device():
    plan = planned([device_pod("p", "every")], [PLAIN], claim("every", request(count=None)))
    assert not plan.claims


def test_devices_of_two_requests_have_one_value_of_an_attribute():
    mixed = devices_of(
        device("gpu-0", numa=0, kind="gpu"),
        device("nic-0", numa=1, kind="nic"),
        device("nic-1", numa=0, kind="nic"),
    )
    kinds = [
        request(kind, selectors=[f'device.attributes["{DRIVER}"].kind == "{kind}"'])
        for kind in ("gpu", "nic")
    ]
    pair = claim("pair", *kinds, match="numa")
    assert planned([device_pod("p", "pair")], [gpu_type("t", mixed)], pair).claims
    apart = devices_of(device("gpu-0", numa=0, kind="gpu"), device("nic-0", numa=1, kind="nic"))
    assert not planned([device_pod("p", "pair")], [gpu_type("t", apart)], pair).claims


def test_the_first_device_is_given_back_if_the_second_has_another_value():
    """The first pair of equal devices is in the middle of the list."""
    devices = devices_of(*(device(f"d{n}", numa=value) for n, value in enumerate((0, 1, 2, 1))))
    pair = claim("pair", request("a"), request("b"), match="numa")
    assert planned([device_pod("p", "pair")], [gpu_type("t", devices)], pair).claims


def test_devices_without_a_value_match_by_the_binding_of_their_type():
    devices = [device(f"d{n}") for n in range(3)]
    bound = AttributeBinding(
        attribute=f"{DRIVER}/numa",
        devices=frozenset((DRIVER, "node", name) for name in ("d1", "d2")),
    )
    other = msgspec.structs.replace(bound, attribute=f"{DRIVER}/model")
    pair = claim("pair", request("a"), request("b"), match="numa")
    for bindings, is_placed in (((bound,), True), ((other,), False), ((), False)):
        types = [gpu_type("t", devices_of(*devices, bindings=bindings))]
        assert bool(planned([device_pod("p", "pair")], types, pair).claims) is is_placed


def test_the_first_available_alternative_is_taken():
    big = request("big", count=2)
    small = request("small", count=1)
    either = claim("either", first_available("gpu", big, small))
    assert types_of(planned([device_pod("p", "either")], [ONE], either)) == {"b-one"}
    plan = planned([device_pod("p", "either"), device_pod("q", "one")], [TWO], either, claim("one"))
    assert [len(one.pods) for one in plan.claims] == [1, 1]


# -- 354: what is missing --------------------------------------------------------------------------


def test_a_missing_claim_is_named_and_later_allocated():
    plan = planned([device_pod("p", "gpu")], TYPES)
    assert 'resourceclaim "default/gpu" not found' in reason(plan, "p")
    assert planned([device_pod("p", "gpu")], TYPES, claim("gpu")).claims


def test_a_missing_class_is_named():
    asked = claim("gpu", request(device_class="tpu.example.com"))
    plan = planned([device_pod("p", "gpu")], TYPES, asked)
    assert 'deviceclass "tpu.example.com" not found' in reason(plan, "p")


def test_a_device_that_no_type_has_is_named_with_its_selectors():
    plan = planned([device_pod("p", "gpu")], [PLAIN], claim("gpu"))
    assert "no instance type offers a device of class gpu.example.com" in reason(plan, "p")
    (rejection,) = next(iter(plan.unschedulable.values())).pools.values()
    assert rejection.constraint is PoolConstraint.DEVICE
    selector = f'"model" in device.attributes["{DRIVER}"]'
    plan = planned([device_pod("p", "gpu")], TYPES, claim("gpu", request(selectors=[selector])))
    assert f"with {selector}" in reason(plan, "p")


def test_a_claim_that_the_status_says_is_not_needed_is_left_out():
    plan = planned([device_pod("p", templates={"gpu": ""})], TYPES)
    assert types_of(plan) == {"a-plain", "b-one", "c-two"}
    assert plan.claims[0].device_drivers == ()


def test_a_claim_that_is_not_generated_yet_defers_the_pod():
    made = device_pod("p", templates={"gpu": "p-gpu"})
    made = msgspec.structs.replace(made, resource_claim_statuses={})
    plan = planned([made], TYPES, claim("p-gpu"))
    assert "not generated yet" in reason(plan, "p")


def test_a_selector_that_cannot_be_evaluated_refuses_the_pod():
    for selector, text in (
        (f'device.attributes["{DRIVER}"].missing == 1', "no such key: missing"),
        ("device.driver", "not true or false"),
        ('device.attributes["x"].?y.orValue(true)', "is not supported"),
    ):
        plan = planned([device_pod("p", "gpu")], TYPES, claim("gpu", request(selectors=[selector])))
        assert not plan.claims
        assert text in reason(plan, "p")


@pytest.mark.parametrize("unsupported", ["a constraint with distinctAttribute is not supported"])
def test_an_unsupported_claim_is_refused_with_its_reason(unsupported):
    plan = planned([device_pod("p", "gpu")], TYPES, claim("gpu", unsupported=unsupported))
    assert unsupported in reason(plan, "p")


def refused_request(one, **classes):
    found = read_claim(claim("gpu", one), {CLASS: device_class(), **classes})
    return found.message.partition('": ')[2] if isinstance(found, DeviceRefusal) else ""


def test_a_request_says_why_it_cannot_be_met():
    """By no device of any node, however many there are."""
    admin = first_available("gpu", request(admin_access=True))
    odd = msgspec.structs.replace(device_class("odd"), unsupported="a selector of no kind")
    nothing = msgspec.structs.replace(request(), alternatives=())
    assert refused_request(request()) == ""
    assert refused_request(request(count=1)) == ""
    assert refused_request(request(admin_access=True)) == ""
    assert refused_request(nothing) == 'request "gpu" asks for nothing'
    assert "count 0 is not above zero" in refused_request(request(count=0))
    assert 'deviceclass "gone" not found' in refused_request(request(device_class="gone"))
    assert "a selector of no kind" in refused_request(request(device_class="odd"), odd=odd)
    assert "adminAccess is not possible" in refused_request(admin)
    most = MAX_DEVICES_PER_CLAIM
    assert refused_request(request(count=most)) == ""
    assert f"at most {most}" in refused_request(request(count=most + 1))


@pytest.mark.parametrize(("effect", "placed"), [("NoSchedule", 0), ("NoExecute", 0), ("None", 1)])
def test_a_taint_of_a_device_without_an_effect_refuses_nothing(effect, placed):
    tainted = devices_of(device("gpu-0", taints=(DeviceTaint(key="broken", effect=effect),)))
    plan = planned([device_pod("p", "gpu")], [gpu_type("b-one", tainted)], claim("gpu"))
    assert len(plan.claims) == placed


# -- 355: zones ------------------------------------------------------------------------------------


def network(*zones, name="net-0"):
    return resource_slice(device(name), pool=f"pool-{'-'.join(zones)}", zones=zones)


def test_a_published_device_of_a_zone_decides_the_zone_of_the_claim():
    plan = planned([device_pod("p", "gpu")], [PLAIN], claim("gpu"), slices=[network("zone-b")])
    assert zones_of(plan) == {"zone-b"}
    assert plan.claims[0].device_drivers == ()


def named(name):
    return request(selectors=[f'device.attributes["{DRIVER}"].id == "{name}"'])


def test_two_claims_with_devices_in_different_zones_have_no_place():
    slices = [
        resource_slice(device("a", id="a"), pool="a", zones=("zone-a",)),
        resource_slice(device("b", id="b"), pool="b", zones=("zone-b",)),
    ]
    claims = claim("a", named("a")), claim("b", named("b"))
    assert not planned([device_pod("p", "a", "b")], [PLAIN], *claims, slices=slices).claims


@pytest.mark.parametrize("order", [1, -1], ids=["node first", "node last"])
def test_a_claim_with_a_device_of_a_node_and_one_of_a_zone_stays_on_the_node(order):
    """Whichever is requested first, another pod of the claim gets no place on a second node."""
    slices = [
        *(resource_slice(device("own", id="own"), node=f"node-{each}") for each in (1, 2)),
        resource_slice(device("net", id="net"), pool="net", zones=("zone-a",)),
    ]
    wanted = [
        request(each, selectors=[f'device.attributes["{DRIVER}"].id == "{each}"'])
        for each in ("own", "net")
    ]
    nodes = [gpu_node(f"node-{each}", cpu="1", labels={ZONE: "zone-a"}) for each in (1, 2)]
    pods = [device_pod(name, "both", cpu="800m") for name in ("p", "q")]

    plan = planned(pods, [], claim("both", *wanted[::order]), nodes=nodes, slices=slices)

    assert [len(there) for there in plan.existing.values() if there] == [1]
    assert len(plan.unschedulable) == 1


def test_zones_of_two_devices_intersect():
    slices = [
        resource_slice(device("a", id="a"), pool="a", zones=("zone-a", "zone-b")),
        resource_slice(device("b", id="b"), pool="b", zones=("zone-b", "zone-c")),
    ]
    claims = claim("a", named("a")), claim("b", named("b"))
    plan = planned([device_pod("p", "a", "b")], [PLAIN], *claims, slices=slices)
    assert zones_of(plan) == {"zone-b"}


def test_a_device_in_a_zone_where_nothing_is_sold_is_passed_over():
    types = [instance_type("t", zones=("zone-b",))]
    slices = [network("zone-a", name="a"), network("zone-b", name="b")]
    plan = planned([device_pod("p", "gpu")], types, claim("gpu"), slices=slices)
    assert zones_of(plan) == {"zone-b"}


def test_a_published_device_is_given_once():
    claims = claim("a"), claim("b")
    pods = [device_pod("p", "a"), device_pod("q", "b")]
    plan = planned(pods, [PLAIN], *claims, slices=[network("zone-a")])
    assert sum(len(one.pods) for one in plan.claims) == 1
    assert len(plan.unschedulable) == 1


def with_topology(one, **fields):
    return msgspec.structs.replace(one, shape=msgspec.structs.replace(one.shape, **fields))


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_pods_with_devices_are_spread_over_nodes_that_have_some(key):
    nodes = [gpu_node(f"node-{each}", labels={ZONE: f"zone-{each}"}) for each in "abc"]
    slices = [resource_slice(*gpus(2), node=node.name) for node in nodes]
    pods = [
        with_topology(device_pod(name, name, labels=TEST), topology_spread=(spread(key),))
        for name in "pqr"
    ]

    plan = planned(pods, [], *map(claim, "pqr"), nodes=nodes, slices=slices)

    assert sorted(len(there) for there in plan.existing.values()) == [1, 1, 1]


def test_a_spread_pod_takes_a_node_with_devices_before_a_new_node_in_another_zone():
    """The first node that has devices is in a zone that takes no more pods."""
    there = pod("there", labels=TEST, node_name="node-a")
    nodes = [
        gpu_node("node-a", labels={ZONE: "zone-a"}, bound=[there]),
        gpu_node("node-c", labels={ZONE: "zone-c"}),
    ]
    sold = gpu_type("b-one", devices_of(*gpus(1)), zones=("zone-a", "zone-b"))
    slices = [resource_slice(*gpus(2), node=node.name) for node in nodes]
    waits = with_topology(device_pod("p", "gpu", labels=TEST), topology_spread=(spread(ZONE),))

    plan = planned([waits], [sold], claim("gpu"), nodes=nodes, slices=slices)

    assert [one.name for one in plan.existing.get("node-c", ())] == ["p"]


def test_pods_with_devices_count_for_pods_that_are_spread_without_any():
    """Their nodes get a zone, where they are among the pods that skews are computed from."""
    zones = ("zone-a", "zone-b", "zone-c")
    types = [gpu_type("b-one", devices_of(*gpus(1)), zones=zones), gpu_type("plain", zones=zones)]
    waits = [device_pod(name, name, labels=TEST) for name in "pq"]
    others = [
        with_topology(pod(f"web-{n}", cpu="1900m", labels=TEST), topology_spread=(spread(ZONE),))
        for n in range(4)
    ]
    asked = replace(
        problem([*waits, *others], catalogue=catalogue(*types)),
        devices=inventory(claim("p"), claim("q")),
    )

    plan = solve(asked)

    assert not plan.unschedulable
    assert violations(asked, plan) == []


# -- 356: nodes that exist -------------------------------------------------------------------------


def test_a_device_on_a_node_is_preferred_over_a_new_node():
    plan = planned(
        [device_pod("p", "gpu")],
        TYPES,
        claim("gpu"),
        nodes=[gpu_node()],
        slices=[resource_slice(*gpus(1), node="node-1")],
    )
    assert not plan.claims
    assert [one.name for one in plan.existing["node-1"]] == ["p"]


def test_a_node_that_is_not_initialised_has_the_devices_of_its_type():
    plan = planned(
        [device_pod("p", "a"), device_pod("q", "b")],
        TYPES,
        claim("a"),
        claim("b"),
        nodes=[gpu_node(initialized=False)],
        slices=[resource_slice(*gpus(2), node="node-1")],
        node_types={"node-1": (ONE.devices,)},
    )
    assert len(plan.existing["node-1"]) == 1
    assert len(plan.claims) == 1


def test_a_starting_claim_of_several_types_offers_their_minimum():
    nodes = [gpu_node("starting", initialized=False)]
    claims = claim("a"), claim("b")
    pods = [device_pod("p", "a"), device_pod("q", "b")]
    plan = planned(
        pods, TYPES, *claims, nodes=nodes, node_types={"starting": (ONE.devices, TWO.devices)}
    )
    assert len(plan.existing["starting"]) == 1


def test_devices_of_pods_that_were_placed_by_earlier_passes_are_not_given_again():
    earlier = device_pod("earlier", "a")
    for initialized in (False, True):
        plan = planned(
            [device_pod("p", "b")],
            TYPES,
            claim("a"),
            claim("b"),
            nodes=[gpu_node(initialized=initialized, bound=[earlier])],
            slices=[resource_slice(*gpus(1), node="node-1")],
            node_types={} if initialized else {"node-1": (ONE.devices,)},
        )
        assert not plan.existing
        assert len(plan.claims) == 1


@pytest.mark.parametrize(
    ("held", "placed"), [("gpu-0", 1), ("gpu-7", 0)], ids=["declared", "not declared"]
)
def test_devices_that_a_starting_node_has_given_already_are_in_use(held, placed):
    """Two are declared; one that is in use counts by its name, an unknown one closes the node."""
    running = device_pod("running", "old", node_name="node-1")
    plan = planned(
        [device_pod("p", "a"), device_pod("q", "b")],
        [PLAIN],
        allocated("old", held, node="node-1", consumers=(running.uid,)),
        claim("a"),
        claim("b"),
        nodes=[gpu_node(initialized=False, bound=[running])],
        node_types={"node-1": (TWO.devices,)},
    )
    assert len(plan.existing.get("node-1", ())) == placed


def test_slices_of_unknown_nodes_are_ignored():
    stray = replace_slice(network("zone-a"), owner_node="gone")
    plan = planned([device_pod("p", "gpu")], [PLAIN], claim("gpu"), slices=[stray])
    assert not plan.claims


def replace_slice(found, **fields):
    return msgspec.structs.replace(found, **fields)


@pytest.mark.parametrize(
    ("published", "count", "seen"),
    [((), 1, []), ((), 2, [0]), (gpus(1), 1, [1]), (gpus(1), 2, [1])],
    ids=["nothing", "nothing so far", "a device", "a device so far"],
)
def test_a_node_sees_a_pool_that_has_a_device_for_it_or_is_incomplete(published, count, seen):
    """Of one that is incomplete nobody can say that it has none."""
    pools = PublishedPools([resource_slice(*published, count=count)])
    node = DeviceNode(requirements=Requirements(), name="node-1", may_narrow=False)
    assert [len(pool.devices) for pool in pools.seen_by(node)] == seen


# -- 357: devices that are held --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("consumers", "is_free"),
    [(("uid-default-old",), True), (("uid-default-old", "other"), False), (("other",), False)],
    ids=["moving", "mixed", "staying"],
)
def test_devices_are_free_if_only_moving_pods_hold_them(consumers, is_free):
    old = device_pod("old", "a", node_name="leaving")
    plan = planned(
        [old, device_pod("p", "b")] if is_free else [device_pod("p", "b")],
        [PLAIN],
        allocated("a", "net-0", pool="pool-zone-a", consumers=consumers),
        claim("b"),
        slices=[network("zone-a")],
    )
    assert sum(len(one.pods) for one in plan.claims) == (1 if is_free else 0)


def test_a_claim_that_is_reserved_for_something_else_keeps_its_devices():
    held = allocated("a", "net-0", pool="pool-zone-a", consumers=())
    held = replace_slice(
        held, reserved_for=(ClaimConsumer(resource="jobs", api_group="x", name="j", uid="u"),)
    )
    plan = planned([device_pod("p", "b")], [PLAIN], held, claim("b"), slices=[network("zone-a")])
    assert not plan.claims


# -- 358: shared claims ----------------------------------------------------------------------------


def test_pods_of_one_claim_with_devices_of_a_node_are_together():
    pods = [device_pod("p", "gpu"), device_pod("q", "gpu", cpu="3500m")]
    plan = planned(pods, [gpu_type("t", devices_of(*gpus(1)))], claim("gpu"))
    assert [len(one.pods) for one in plan.claims] == [2]
    pods = [device_pod("p", "gpu", cpu="2500m"), device_pod("q", "gpu", cpu="2500m")]
    plan = planned(pods, [gpu_type("t", devices_of(*gpus(2)))], claim("gpu"))
    assert len(plan.claims) == 1
    assert len(plan.unschedulable) == 1


def test_a_claim_with_published_devices_may_be_used_on_several_nodes():
    pods = [device_pod("p", "gpu", cpu="2500m"), device_pod("q", "gpu", cpu="2500m")]
    plan = planned(pods, [PLAIN], claim("gpu"), slices=[network("zone-b")])
    assert [len(one.pods) for one in plan.claims] == [1, 1]


def test_a_pod_follows_the_devices_that_its_claim_has():
    nodes = [gpu_node("node-1"), gpu_node("node-2")]
    held = allocated("gpu", "gpu-0", pool="node-2", node="node-2")
    slices = [resource_slice(*gpus(1), node=name) for name in ("node-1", "node-2")]
    plan = planned([device_pod("p", "gpu")], TYPES, held, nodes=nodes, slices=slices)
    assert list(plan.existing) == ["node-2"]


def test_a_node_refused_to_one_claim_is_not_refused_to_another_that_has_devices_there():
    """The answer about a claim that has devices is about that claim alone."""
    plan = planned(
        [device_pod("p", "there"), device_pod("q", "here")],
        TYPES,
        allocated("there", "gpu-0", pool="node-2", node="node-2"),
        allocated("here", "gpu-0", pool="node-1", node="node-1"),
        nodes=[gpu_node("node-1"), gpu_node("node-2")],
        slices=[resource_slice(*gpus(1), node=name) for name in ("node-1", "node-2")],
    )
    assert {name: [pod.name for pod in pods] for name, pods in plan.existing.items()} == {
        "node-1": ["q"],
        "node-2": ["p"],
    }


def with_consumers(count, *pods):
    """Plan pods whose claim so many pods have already, `reserved` among them."""
    consumers = [f"uid-{number}" for number in range(count - 1)] + ["uid-default-reserved"]
    return planned(
        pods,
        TYPES,
        allocated("gpu", "gpu-0", node="node-1", consumers=consumers),
        nodes=[gpu_node()],
        slices=[resource_slice(*gpus(1), node="node-1")],
    )


def test_a_claim_has_as_many_pods_as_kubernetes_reserves_it_for():
    plan = with_consumers(255, device_pod("p", "gpu"), device_pod("q", "gpu"))
    assert len(plan.existing["node-1"]) == 1
    assert "has 256 consumers already" in reason(plan, "q")


@pytest.mark.parametrize("placed_before", [0, 1])
def test_pods_that_passes_place_count_among_those_of_a_new_claim(monkeypatch, placed_before):
    monkeypatch.setattr(pod_claims, "MAX_CONSUMERS", 3)
    earlier = [device_pod(f"earlier-{number}", "gpu") for number in range(placed_before)]
    plan = planned(
        [device_pod(f"p{number}", "gpu", cpu="100m") for number in range(4)],
        TYPES,
        claim("gpu"),
        nodes=[gpu_node(bound=earlier)],
        slices=[resource_slice(*gpus(1), node="node-1")],
    )
    assert len(plan.existing["node-1"]) == 3 - placed_before
    assert len(plan.unschedulable) == 1 + placed_before


def test_a_pod_that_a_claim_is_reserved_for_is_one_of_its_pods_already():
    plan = with_consumers(256, device_pod("reserved", "gpu"))
    assert [pod.name for pod in plan.existing["node-1"]] == ["reserved"]


def test_a_claim_that_is_being_deleted_gets_no_pods():
    ending = allocated("gpu", "gpu-0", node="node-1", deletion_timestamp=EPOCH)
    plan = planned(
        [device_pod("p", "gpu")],
        TYPES,
        ending,
        nodes=[gpu_node()],
        slices=[resource_slice(*gpus(1), node="node-1")],
    )
    assert not plan.existing
    assert "is being deleted" in reason(plan, "p")


# -- 359: capacity that is shared ------------------------------------------------------------------


def shared(value="10", **policy):
    capacity = DeviceCapacity(
        name=f"{DRIVER}/memory",
        value=Decimal(value),
        **{
            key: tuple(map(Decimal, one)) if isinstance(one, tuple) else Decimal(one)
            for key, one in policy.items()
        },
    )
    return gpu_type("t", devices_of(device("gpu-0", capacity={"memory": capacity}, shared=True)))


def memory(amount, count=1):
    return request(capacity={"memory": str(amount)}, count=count)


def placed_counts(types, *requests):
    claims = [claim(f"c{n}", one) for n, one in enumerate(requests)]
    pods = [device_pod(f"p-{n}", f"c{n}") for n in range(len(requests))]
    plan = planned(pods, types, *claims)
    return [len(one.pods) for one in plan.claims], len(plan.unschedulable)


def test_requests_share_a_device_while_its_capacity_lasts():
    assert placed_counts([shared()], memory(4), memory(4), memory(4)) == ([2, 1], 0)


def test_a_request_for_more_than_a_device_has_is_refused():
    assert placed_counts([shared()], memory(11)) == ([], 1)


def test_a_request_for_an_unknown_capacity_is_refused():
    assert placed_counts([shared()], request(capacity={"bandwidth": "1"})) == ([], 1)


def test_requests_are_rounded_up_to_valid_values():
    types = [shared(valid_values=("2", "5", "10"), default="2")]
    assert placed_counts(types, memory(3), memory(5)) == ([2], 0)
    assert placed_counts(types, memory(3), memory(6)) == ([1, 1], 0)
    assert placed_counts([shared(valid_values=("2", "5"), default="2")], memory(6)) == ([], 1)


def test_requests_are_rounded_up_to_the_steps_of_a_range():
    types = [shared(minimum="4", step="3", maximum="8", default="4")]
    assert placed_counts(types, memory(1), memory(1)) == ([2], 0)
    assert placed_counts(types, memory(5), memory(4)) == ([1, 1], 0)
    assert placed_counts(types, memory(8)) == ([], 1)


def test_without_a_request_the_default_is_taken_or_everything():
    types = [shared(valid_values=("5",), default="5")]
    assert placed_counts(types, request(), request()) == ([2], 0)
    assert placed_counts([shared()], request(), request()) == ([1, 1], 0)


def test_capacity_of_a_staying_pod_is_taken_and_that_of_a_moving_pod_is_free():
    published = resource_slice(
        device("gpu-0", capacity={"memory": "10"}, shared=True), pool="net", zones=("zone-a",)
    )
    held = allocated("old", "gpu-0", pool="net", consumed={"memory": "6"}, consumers=("stays",))
    asked = claim("new", memory(6))
    plan = planned([device_pod("p", "new")], [PLAIN], held, asked, slices=[published])
    assert not plan.claims
    moving = device_pod("old", "old", node_name="leaving")
    held = allocated("old", "gpu-0", pool="net", consumed={"memory": "6"}, consumers=(moving.uid,))
    held = replace_slice(held, requests=(memory(4),))
    plan = planned([moving, device_pod("p", "new")], [PLAIN], held, asked, slices=[published])
    assert sum(len(one.pods) for one in plan.claims) == 2


# -- 360: partitions -------------------------------------------------------------------------------


def partitions(*profiles, memory_units=8, slots=4):
    """Make a type whose devices take (memory, slots) of one counter set."""
    devices = [
        device(f"mig-{n}", counters={"gpu": {"memory": m, "slots": s}}, profile=f"{m}-{s}")
        for n, (m, s) in enumerate(profiles)
    ]
    counters = counter_set("gpu", memory=memory_units, slots=slots)
    return gpu_type("t", devices_of(*devices, counter_sets=(counters,)))


@pytest.mark.parametrize(
    ("profiles", "placed"),
    [
        (((4, 1), (4, 1), (4, 1)), [2, 1]),
        (((1, 2), (1, 2), (1, 2)), [2, 1]),
        (((1, 1), (1, 1), (1, 1)), [3]),
    ],
    ids=["memory", "slots", "all fit"],
)
def test_counters_limit_the_partitions_of_one_device(profiles, placed):
    assert placed_counts([partitions(*profiles)], request(), request(), request()) == (placed, 0)


def test_a_partition_beyond_the_counters_is_never_allocated():
    assert placed_counts([partitions((9, 1))], request()) == ([], 1)


def test_an_unknown_counter_makes_the_pool_invalid():
    broken = devices_of(
        device("a", counters={"gpu": {"cores": 1}}), counter_sets=(counter_set("gpu", memory=1),)
    )
    plan = planned([device_pod("p", "gpu")], [gpu_type("t", broken)], claim("gpu"))
    assert 'unknown counter "cores"' in reason(plan, "p")


# -- 361: pools ------------------------------------------------------------------------------------


def on_node(*slices, asked=None):
    return planned(
        [device_pod("p", "gpu")],
        [PLAIN],
        claim("gpu", asked or request()),
        nodes=[gpu_node()],
        slices=slices,
    )


def test_only_the_newest_generation_of_a_pool_counts():
    old = resource_slice(*gpus(1), node="node-1", generation=1)
    new = resource_slice(node="node-1", generation=2)
    assert not on_node(old, new).existing
    assert on_node(old).existing


def test_an_incomplete_pool_is_skipped_and_an_error_for_all_devices():
    half = resource_slice(*gpus(1), node="node-1", count=2)
    whole = resource_slice(device("other"), node="node-1", pool="whole")
    assert not on_node(half).existing
    assert on_node(half, whole).existing
    assert not on_node(half, whole, asked=request(count=None)).existing
    assert on_node(whole, asked=request(count=None)).existing


def test_all_devices_cannot_be_allocated_while_a_slice_without_devices_is_missing():
    """Those of the node may be in the slices that are not published yet."""
    none_yet = resource_slice(node="node-1", count=2)
    whole = resource_slice(device("other"), node="node-1", pool="whole")
    assert on_node(none_yet, whole).existing
    assert not on_node(none_yet, whole, asked=request(count=None)).existing


def test_an_incomplete_pool_of_another_node_stops_nothing():
    whole = resource_slice(device("mine"), node="node-1", pool="whole")
    half = resource_slice(device("theirs"), node="node-2", count=2)
    assert on_node(whole, half, asked=request(count=None)).existing


def test_two_devices_of_one_name_make_a_pool_invalid():
    assert not on_node(resource_slice(*gpus(1), *gpus(1), node="node-1")).existing


def test_slices_of_a_node_are_for_that_node_alone():
    slices = [resource_slice(*gpus(1), node="node-2")]
    nodes = [gpu_node("node-1"), gpu_node("node-2")]
    plan = planned([device_pod("p", "gpu")], [PLAIN], claim("gpu"), nodes=nodes, slices=slices)
    assert list(plan.existing) == ["node-2"]


# -- 362: bounds -----------------------------------------------------------------------------------


def test_a_claim_has_at_most_thirty_two_devices():
    types = [gpu_type("t", devices_of(*gpus(40)))]
    assert planned([device_pod("p", "gpu")], types, claim("gpu", request(count=32))).claims
    plan = planned([device_pod("p", "gpu")], types, claim("gpu", request(count=33)))
    assert "at most 32" in reason(plan, "p")
    either = claim("gpu", first_available("x", request("a", count=33), request("b", count=2)))
    assert planned([device_pod("p", "gpu")], types, either).claims
    every = claim("gpu", request(count=None))
    assert not planned([device_pod("p", "gpu")], types, every).claims


def test_a_search_that_takes_too_long_is_refused():
    """Every device differs, and no two of them match."""
    types = [gpu_type("t", devices_of(*(device(f"d{n}", a=n // 2, b=n) for n in range(40))))]
    asked = claim("gpu", *(request(f"r{n}", count=2) for n in range(3)), match="a")
    plan = planned([device_pod("p", "gpu")], types, asked)
    assert not plan.claims


# -- taints, limits and other constraints of pods --------------------------------------------------


def test_a_device_with_a_taint_is_for_requests_that_tolerate_it():
    sick = DeviceTaint(key="sick", value="yes", effect="NoSchedule")
    types = [gpu_type("t", devices_of(device("d", taints=[sick])))]
    assert placed_counts(types, request()) == ([], 1)
    tolerant = DeviceToleration(key="sick", operator="Exists")
    assert placed_counts(types, request(tolerations=(tolerant,))) == ([1], 0)


def test_limits_and_the_number_of_new_nodes_hold_for_both_kinds_of_pods():
    pods = [device_pod("p", "gpu"), pod("q", cpu="3900m")]
    pools = [node_pool(limits={"nodes": "1"})]
    plan = planned(pods, TYPES, claim("gpu"), pools=pools)
    assert len(plan.claims) == 1
    asked = replace(
        problem(pods, catalogue=catalogue(*TYPES)),
        devices=inventory(claim("gpu")),
        max_new_nodes=1,
    )
    assert len(solve(asked).claims) == 1


def test_a_quota_counts_the_nodes_of_both_kinds_of_pods():
    pods = [device_pod("p", "gpu"), pod("q", cpu="3900m")]
    asked = replace(problem(pods, catalogue=catalogue(*TYPES)), devices=inventory(claim("gpu")))
    quota = LaunchQuota(name="one node", requirements=Requirements(), limits={NODES: 1})
    assert len(solve(asked).claims) == 2
    plan = solve(replace(asked, quotas=(quota,)))
    assert [one.name for made in plan.claims for one in made.pods] == ["p"]


def test_a_price_limit_counts_the_nodes_of_both_kinds_of_pods():
    pods = [device_pod("p", "gpu"), pod("q", cpu="3900m")]
    both = planned(pods, TYPES, claim("gpu"))
    assert len(both.claims) == 2
    dearest = max(one.price.amount for each in TYPES for one in each.offerings)
    pools = [node_pool(limits={PRICE_PER_HOUR: f"{1.5 * float(dearest):.6f}"})]
    plan = planned(pods, TYPES, claim("gpu"), pools=pools)
    assert [one.name for made in plan.claims for one in made.pods] == ["p"]


def test_a_spot_share_counts_the_nodes_of_both_kinds_of_pods():
    pods = [device_pod("p", "gpu"), pod("q", cpu="3900m")]
    pool = node_pool()
    metadata = pool.metadata.model_copy(update={"annotations": {SPOT_SHARE: "50%"}})
    pools = [pool.model_copy(update={"metadata": metadata})]
    plan = planned(pods, TYPES, claim("gpu"), pools=pools)
    assert len(plan.claims) == 2
    types = [
        value for made in plan.claims for one in made.requirements
        if one.key == CAPACITY_TYPE for value in one.values
    ]  # fmt: skip
    assert sorted(types) == ["on-demand", "spot"]


def test_admin_access_takes_a_device_that_is_in_use():
    claims = claim("a"), claim("admin", request(admin_access=True))
    plan = planned([device_pod("p", "a"), device_pod("q", "admin")], [ONE], *claims)
    assert [len(one.pods) for one in plan.claims] == [2]


def test_pods_without_claims_keep_their_places_on_nodes_beside_pods_with_claims():
    """The two kinds are planned one after the other, and the plan has both."""
    pods = [device_pod("p", "gpu"), pod("q")]
    plan = planned(pods, TYPES, claim("gpu"), nodes=[gpu_node()])
    assert {name: [p.name for p in placed] for name, placed in plan.existing.items()} == {
        "node-1": ["q"]
    }
    assert [p.name for made in plan.claims for p in made.pods] == ["p"]
    assert not plan.unschedulable


def test_the_plan_does_not_depend_on_the_order_of_pods():
    claims = [claim(f"gpu-{n}") for n in range(5)]
    pods = [device_pod(f"p-{n}", f"gpu-{n}") for n in range(5)]
    plans = [planned(order, TYPES, *claims) for order in (pods, pods[::-1])]
    first, second = (
        [(made.instance_types, [one.uid for one in made.pods]) for made in plan.claims]
        for plan in plans
    )
    assert first == second


def test_classes_select_devices_by_quantity_and_version():
    classes = [
        device_class(
            "gpu.example.com",
            f'device.driver == "{DRIVER}"',
            f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
        )
    ]
    small = gpu_type("small", devices_of(device("d", capacity={"memory": str(20 * 2**30)})))
    large = gpu_type("large", devices_of(device("d", capacity={"memory": str(80 * 2**30)})))
    plan = planned([device_pod("p", "gpu")], [small, large], claim("gpu"), classes=classes)
    assert types_of(plan) == {"large"}
