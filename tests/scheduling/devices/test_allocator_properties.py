"""Allocations are sound, and found whenever trying everything finds one."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.devices.allocator import (
    DeviceAllocation,
    DeviceSources,
    allocate_devices,
)
from karpenter_core.scheduling.devices.capacity import consumed_capacity
from karpenter_core.scheduling.devices.pools import DeviceNode, template_pools
from karpenter_core.scheduling.devices.requests import ClaimRequests, read_claim
from karpenter_core.scheduling.devices.usage import UsageLayer
from karpenter_core.scheduling.requirements import Requirements
from tests.scheduling.devices.builders import (
    DRIVER,
    claim,
    counter_set,
    device,
    device_class,
    devices_of,
    first_available,
    request,
)

NODE = DeviceNode(requirements=Requirements(), may_narrow=False)
BUDGETS = {"memory": 6, "slots": 3}


@st.composite
def devices(draw):
    """Draw up to five devices; some are shared, some take counters."""
    return tuple(
        device(
            f"d{number}",
            kind=draw(st.sampled_from(["a", "b"])),
            numa=draw(st.integers(0, 1)),
            shared=draw(st.booleans()),
            capacity={"memory": draw(st.integers(2, 6))},
            counters=draw(
                st.sampled_from([{}, {"gpu": {"memory": 2, "slots": 1}}, {"gpu": {"memory": 4}}])
            ),
        )
        for number in range(draw(st.integers(1, 5)))
    )


@st.composite
def requests(draw, name):
    """Draw a request: some devices, all of a kind, or one of two alternatives."""
    options = {
        "selectors": draw(
            st.sampled_from(
                [(), *((f'device.attributes["{DRIVER}"].kind == "{k}"',) for k in "ab")]
            )
        ),
        "capacity": draw(st.sampled_from([{}, {"memory": "1"}, {"memory": "3"}])),
    }
    one = request(name, count=draw(st.sampled_from([1, 1, 2, None])), **options)
    if draw(st.booleans()):
        return one
    return first_available(name, request("x", count=draw(st.integers(1, 2)), **options), one)


@st.composite
def claims(draw):
    """Draw up to two claims with up to two requests each."""
    return [
        claim(
            f"c{number}",
            *(draw(requests(f"r{one}")) for one in range(draw(st.integers(1, 2)))),
            match=draw(st.sampled_from([None, "numa"])),
        )
        for number in range(draw(st.integers(1, 2)))
    ]


def read(found):
    classes = {"gpu.example.com": device_class()}
    read_claims = [read_claim(one, classes) for one in found]
    assert all(isinstance(one, ClaimRequests) for one in read_claims)
    return read_claims


def pools_of(found):
    return template_pools(
        devices_of(*found, counter_sets=(counter_set("gpu", **BUDGETS),)).templates, bindings=()
    )


def is_kind(wanted, found):
    attributes = dict(found.attributes)
    return all(f'"{attributes[f"{DRIVER}/kind"]}"' in one for one in wanted.request.selectors)


def may_have(members):
    """Judge whether these requests may have one device together."""
    _, one = members[0]
    amounts = [consumed_capacity(one, wanted.request.capacity, DRIVER) for wanted, _ in members]
    if any(amount is None for amount in amounts) or (len(members) > 1 and not one.is_shareable):
        return False
    total = sum(value for amount in amounts for _, value in amount)
    return not one.is_shareable or total <= one.capacity[0].value


def is_sound(placements, found):
    """Judge (wanted, device) pairs by the rules alone."""
    users = {}
    for wanted, one in placements:
        users.setdefault(one.name, []).append((wanted, one))
    if not all(may_have(members) for members in users.values()):
        return False
    counters = dict.fromkeys(BUDGETS, 0)
    for members in users.values():
        _, one = members[0]
        for use in one.counter_uses:
            for name, amount in use.counters:
                counters[name] += amount
    if any(counters[name] > budget for name, budget in BUDGETS.items()):
        return False
    return all(
        len(
            {
                dict(one.attributes)[f"{DRIVER}/numa"]
                for wanted, one in placements
                if wanted.claim == read_one.claim
            }
        )
        <= 1
        for read_one in found
        if read_one.constraints
    )


def found_by_trying_everything(found, offered):
    """Try every choice of alternatives and every assignment of devices to slots."""
    groups = [one for read_one in found for one in read_one.requests]
    for alternatives in product(*groups):
        slots = []
        fixed = []
        possible = True
        for wanted in alternatives:
            matching = [one for one in offered if is_kind(wanted, one)]
            if wanted.request.count is None:
                possible &= bool(matching)
                fixed += [(wanted, one) for one in matching]
            else:
                slots += [(wanted, matching)] * wanted.request.count
        if not possible:
            continue
        for choice in product(*(matching for _, matching in slots)):
            placements = [*fixed, *((w, one) for (w, _), one in zip(slots, choice, strict=True))]
            if is_sound(placements, found):
                return True
    return False


@given(devices(), claims())
def test_an_allocation_is_valid_and_exists_if_one_is_possible(offered, asked):
    found = read(asked)
    result = allocate_devices(
        found, NODE, DeviceSources(pools=pools_of(offered), own_layers=(), bindings=())
    )
    is_allocated = isinstance(result, DeviceAllocation)
    assert is_allocated is found_by_trying_everything(found, offered)
    if is_allocated:
        wanted_by_name = {
            (one.claim, one.result_name): one
            for read_one in found
            for group in read_one.requests
            for one in group
        }
        placements = [
            (wanted_by_name[one.claim, one.request], one.placed.device) for one in result.picked
        ]
        assert all(is_kind(wanted, one) for wanted, one in placements)
        assert is_sound(placements, found)


@given(devices(), claims(), claims())
def test_a_second_allocation_respects_the_first(offered, first, second):
    """Devices of one pod are in use for the next."""
    pools, layer = pools_of(offered), UsageLayer()
    placements = []
    for number, asked in enumerate((first, second)):
        found = read(asked)
        sources = DeviceSources(pools=pools, own_layers=(layer,), bindings=())
        result = allocate_devices(found, NODE, sources)
        if not isinstance(result, DeviceAllocation):
            continue
        for one in result.picked:
            first_use = one.placed.id not in layer.users
            layer.take(one.placed.id, one.placed.device, one.consumed, counts=first_use)
            placements.append((number, one))
    by_device = {}
    for _, one in placements:
        by_device.setdefault(one.placed.device, []).append(one)
    counters = dict.fromkeys(BUDGETS, 0)
    for used, members in by_device.items():
        assert len(members) == 1 or used.is_shareable
        total = sum(value for one in members for _, value in one.consumed)
        assert total <= used.capacity[0].value
        for use in used.counter_uses:
            for name, amount in use.counters:
                counters[name] += amount
    assert all(counters[name] <= budget for name, budget in BUDGETS.items())
