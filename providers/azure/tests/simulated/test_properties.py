"""Properties of the simulated Azure: addresses, pages, operations and queries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
from karpenter_core.provider.kit.simulated.ids import IdGenerator
from karpenter_core.provider.kit.simulated.server import HttpRequest
from karpenter_simulated_azure.arm_api import ArmFault, ArmReply, ArmRoutes
from karpenter_simulated_azure.network_interfaces import check_tags
from karpenter_simulated_azure.network_resources import Subnet
from karpenter_simulated_azure.operations import Operations
from karpenter_simulated_azure.resource_manager import ResourceManager
from karpenter_simulated_azure.resources import ResourceTable, page
from karpenter_simulated_azure.world import AzureWorld

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NIC = "Microsoft.Network/networkInterfaces"


def call_of(path, query=""):
    """The call of a GET."""
    routes = ArmRoutes()
    kind = path.rpartition("/providers/")[2]
    routes.add("LIST", kind, lambda _call: ArmReply())
    return routes.read(
        HttpRequest(method="GET", path=path, query=query, headers={"host": "127.0.0.1:1"})
    )


@given(
    prefix=st.integers(min_value=24, max_value=29),
    steps=st.lists(st.tuples(st.booleans(), st.integers(min_value=1, max_value=40)), max_size=30),
)
def test_addresses_are_distinct_in_the_subnet_and_never_lost(prefix, steps):
    subnet = Subnet(id="/subnet", prefix=f"10.1.2.0/{prefix}")
    network = IPv4Network(subnet.prefix)
    held = []
    for takes, count in steps:
        if takes and count > subnet.free:
            with pytest.raises(ArmFault, match="SubnetIsFull"):
                subnet.allocate(["x"] * count)
        elif takes:
            given_out = subnet.allocate([f"owner-{number}" for number in range(count)])
            assert len(given_out) == count
            held.extend(given_out)
        else:
            subnet.release(held[:count])
            held = held[count:]

        assert len(set(held)) == len(held) == subnet.size - subnet.free
        first, last = network.network_address + 4, network.broadcast_address
        assert all(first <= IPv4Address(each) < last for each in held)


@given(count=st.integers(min_value=0, max_value=25), size=st.integers(min_value=1, max_value=10))
def test_pages_together_are_the_list(count, size):
    items = [{"name": str(number)} for number in range(count)]
    path, query, found, pages = "/subscriptions/s/providers/Microsoft.Test/things", "a=b", [], 0
    while True:
        reply = page(call_of(path, query), items, size=size)
        found += reply.body["value"]
        pages += 1
        link = reply.body.get("nextLink")
        if link is None:
            break
        parts = urlsplit(link)
        assert (parts.scheme, parts.netloc, parts.path) == ("https", "127.0.0.1:1", path)
        assert ("a", "b") in parse_qsl(parts.query)
        query = parts.query

    assert found == items
    assert pages == max(1, -(-count // size))


def test_a_skip_token_of_another_query_is_refused():
    call = call_of("/subscriptions/s/providers/Microsoft.Test/things", "$skiptoken=nonsense")

    with pytest.raises(ArmFault, match="InvalidParameter"):
        page(call, [], size=1)


@given(
    seconds=st.one_of(st.none(), st.integers(min_value=0, max_value=100)),
    fails=st.booleans(),
    looks=st.lists(st.integers(min_value=0, max_value=200), max_size=10),
)
def test_an_operation_ends_once_at_its_time(seconds, fails, looks):
    time = CloudTime(lambda: NOON)
    operations = Operations(time, IdGenerator("x"), "westus2")
    error = ArmFault("AllocationFailed", "none left") if fails else None
    done_at = None if seconds is None else NOON + timedelta(seconds=seconds)
    record = operations.start(
        call_of("/subscriptions/s/providers/Microsoft.Test/things"), done_at=done_at, error=error
    )

    for look in sorted(looks):
        time.reset()
        time.advance(look)
        done = seconds is not None and look >= seconds
        assert record.status(time()) == (
            ("Failed" if fails else "Succeeded") if done else "InProgress"
        )
        assert list(operations.running) == ([] if done else [record])


@given(
    ids=st.lists(st.text(alphabet="abAB/", min_size=1, max_size=4), max_size=12),
    removed=st.sets(st.integers(min_value=0, max_value=11)),
)
def test_a_table_is_a_mapping_without_regard_to_case(ids, removed):
    table, model = ResourceTable(), {}
    for number, each in enumerate(ids):
        table.put(each, number)
        model[each.lower()] = number
        if number in removed:
            assert table.remove(each.upper()) == model.pop(each.lower())

    assert list(table) == list(model.values())
    assert all(table.get(key.upper()) == value for key, value in model.items())
    assert all((each in table) == (each.lower() in model) for each in ids)


@given(
    tags=st.lists(
        st.dictionaries(st.sampled_from(["a", "b.c_d", "e"]), st.sampled_from(["x", "y"])),
        min_size=1,
        max_size=6,
    ),
    key=st.sampled_from(["a", "b.c_d", "e", "z"]),
    value=st.sampled_from(["x", "X", "y"]),
)
def test_the_graph_filters_by_tags_as_a_loop_does(tags, key, value):
    time = CloudTime(lambda: NOON)
    manager = ResourceManager(AzureWorld(), time)
    manager.reset()
    manager.graph.lag_seconds = 0
    subnet = {"subnet": {"id": manager.world.subnet_id}}
    for number, each in enumerate(tags):
        nic_id = manager.world.resource_id(NIC, f"nic{number}")
        properties = {"ipConfigurations": [{"name": "a", "properties": subnet}]}
        manager.interfaces.create(nic_id, properties, tags=each)

    def numbers(condition):
        reply = manager.graph.query(f"Resources | where {condition}")
        return [int(row["name"].removeprefix("nic")) for row in reply]

    assert numbers(f'tags has_cs "{key}"') == [n for n, each in enumerate(tags) if key in each]
    assert numbers(f'not(tags has_cs "{key}")') == [
        n for n, each in enumerate(tags) if key not in each
    ]
    assert numbers(f'tags["{key}"] == "{value}"') == [
        n for n, each in enumerate(tags) if each.get(key) == value
    ]
    assert numbers(f"tags['{key}'] =~ '{value}'") == [
        n for n, each in enumerate(tags) if each.get(key, "").lower() == value.lower()
    ]


@given(key=st.text(min_size=1, max_size=600))
def test_tags_are_accepted_exactly_within_the_limits_of_azure(key):
    good = len(key) <= 512 and not set("<>%&\\?/") & set(key)

    if good:
        check_tags({key: "x" * 256})
    else:
        with pytest.raises(ArmFault, match="InvalidTag"):
            check_tags({key: "x"})
