"""Tests the promises of the simulated cloud, also across processes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.api.conditions import Condition
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, REGISTERED, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec, TaintSpec
from karpenter_core.api.nodeclass import NodeClassStatus
from karpenter_core.api.records import NodeView, OwnerView
from karpenter_core.errors import (
    ApiError,
    BadInputError,
    CallPendingError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClaimNotFoundError,
    NodeClassNotReadyError,
    OfferingKey,
    SettingsError,
    ThrottledError,
)
from karpenter_core.provider.contract import Instance, LaunchedInstance, TerminationStatus
from karpenter_core.testing import state_builders
from karpenter_core.testing.provider_world import FakeNodes
from karpenter_provider_kwok import instance_store
from karpenter_provider_kwok.dump import dump_file
from karpenter_provider_kwok.faults import CloudOperation, KwokFault, KwokFaultKind
from karpenter_provider_kwok.instance_store import InstanceStore, record_call
from karpenter_provider_kwok.plugin import KwokProvider
from providers.kwok.tests.worlds import launch, node_class, only, run_kwok

SPOT = RequirementSpec(key=CAPACITY_TYPE, operator="In", values=("spot",))


def ref(request):
    return request.node_claim.spec.node_class_ref


# -- store


def test_a_reader_of_the_store_does_not_block_writers(tmp_path, monkeypatch):
    """`karpenter kwok` and the tests look while the controller launches."""
    monkeypatch.setattr(instance_store, "_BUSY_SECONDS", 0.0)
    path = str(tmp_path / "kwok.sqlite3")
    with closing(InstanceStore(path)) as store, closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM calls").fetchone()

        with store.transaction() as connection:
            record_call(connection, at=0.0, operation="launch", subject="a", result="launched")

        assert reader.execute("SELECT count(*) FROM calls").fetchone() == before
        reader.execute("ROLLBACK")
        assert reader.execute("SELECT count(*) FROM calls").fetchone() == (before[0] + 1,)


def test_every_thousandth_call_removes_the_oldest_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(instance_store, "_KEPT_CALLS", 10)
    with closing(InstanceStore(str(tmp_path / "kwok.sqlite3"))) as store:

        def kept(calls):
            with store.transaction() as db:
                for _ in range(calls):
                    record_call(db, at=0.0, operation="list", subject="", result="listed")
                return db.execute("SELECT count(*), min(id) FROM calls").fetchone()

        assert tuple(kept(999)) == (999, 1)
        assert tuple(kept(1)) == (10, 991)
        assert tuple(kept(1)) == (11, 991)


# -- launch


def test_the_cheapest_offering_that_the_claim_allows_is_launched(tmp_path):
    async def scenario(world):
        on_demand = RequirementSpec(key=CAPACITY_TYPE, operator="In", values=("on-demand",))
        arm = RequirementSpec(key="kubernetes.io/arch", operator="In", values=("amd64",))
        types = only("std1.large", "cpu1.large", "mem1.large")
        outcome = await launch(world, requirements=[types, on_demand, arm])
        assert (outcome.instance_type, outcome.capacity_type) == ("cpu1.large", "on-demand")
        cheapest = await launch(world, "web-2", requirements=[types])
        prices = {
            (it.name, o.zone, o.capacity_type): o.price.amount
            for it in await world.catalogue(node_class())
            for o in it.offerings
            if o.available and it.name in types.values
        }
        key = (cheapest.instance_type, cheapest.zone, cheapest.capacity_type)
        assert prices[key] == min(prices.values())

    run_kwok(scenario, tmp_path)


def test_the_node_equals_one_that_a_kubelet_registers(tmp_path):
    async def scenario(world):
        request = await world.request(
            "web-1",
            node_class(),
            requirements=[only("std1.large"), SPOT],
            taints=[TaintSpec(key="team", value="web", effect="NoSchedule")],
            startup_taints=[TaintSpec(key="cni", effect="NoExecute")],
        )
        outcome = await world.launch(request)
        node = world.nodes.nodes["web-1"]
        assert node.provider_id == outcome.provider_id == "kwok://web-1"
        assert [(t.key, t.value, t.effect) for t in node.taints] == [
            ("team", "web", "NoSchedule"),
            ("cni", "", "NoExecute"),
            ("karpenter.sh/unregistered", "", "NoExecute"),
        ]
        assert node.annotations == {"kwok.x-k8s.io/node": "fake"}
        assert node.labels == {
            **request.node_claim.metadata.labels,
            **outcome.labels,
            "kubernetes.io/hostname": "web-1",
            "kwok.x-k8s.io/node": "fake",
            "kwok-partition": "a",
        }
        assert {
            "node.kubernetes.io/instance-type": "std1.large",
            "topology.kubernetes.io/zone": outcome.zone,
            "topology.kubernetes.io/region": "test-region",
            "karpenter.sh/capacity-type": "spot",
            "karpenter.kwok.sh/instance-family": "std1",
            "karpenter.kwok.sh/instance-memory": "8Gi",
        }.items() <= node.labels.items()
        assert REGISTERED not in node.labels
        assert (node.capacity, node.allocatable) == (outcome.capacity, outcome.allocatable)
        assert node.allocatable["cpu"] == 1900

    run_kwok(scenario, tmp_path)


def test_the_node_comes_after_the_registration_delay(tmp_path):
    """The NodeClass says how long; where it does not, the setting does."""

    async def scenario(world):
        await world.launch(await world.request("quick", node_class()))
        slow = node_class("slow", registration_delay="5s")
        await world.launch(await world.request("slow", slow))
        seen = []
        for _ in range(4):
            await world.clock.sleep(2)
            await world.settle()
            seen.append(sorted(world.nodes.nodes))
        assert seen == [["quick"], ["quick"], ["quick", "slow"], ["quick", "slow"]]

    run_kwok(scenario, tmp_path, kwok_registration_delay=timedelta(seconds=1))


def test_a_launch_answers_before_its_node_exists(tmp_path):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        assert isinstance(await world.providers.launch(request), LaunchedInstance)
        assert world.nodes.nodes == {}
        await world.settle()
        assert set(world.nodes.nodes) == {"web-1"}

    run_kwok(scenario, tmp_path)


def test_a_node_that_cannot_be_created_is_tried_again_later_and_later(tmp_path):
    async def scenario(world):
        world.nodes.failures.extend([ApiError("timeout", status=500)] * 3)
        assert isinstance(await launch(world), LaunchedInstance)
        started, tries = world.clock.monotonic(), []
        while not world.nodes.nodes:
            await world.clock.sleep(0.1)
            before = len(world.nodes.writes)
            await world.settle()
            if len(world.nodes.writes) > before:
                tries.append(round(world.clock.monotonic() - started, 1))
        assert tries == [0.5, 1.5, 3.5]

    run_kwok(scenario, tmp_path)


def test_a_class_that_is_not_ready_launches_nothing(tmp_path):
    async def scenario(world):
        bad = Condition(type="Ready", status="False", reason="Broken", message="no network")
        unready = node_class("bad", status=NodeClassStatus(conditions=(bad,)))
        outcome = await world.launch(await world.request("web-1", unready))
        assert isinstance(outcome, NodeClassNotReadyError)
        assert str(outcome) == "KWOKNodeClass bad is not ready: no network"
        assert world.dump()["instances"] == []

    run_kwok(scenario, tmp_path)


def test_a_token_whose_instance_is_gone_launches_nothing(tmp_path):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        await world.providers.terminate(ref(request), "kwok://web-1")
        outcome = await world.launch(request)
        assert isinstance(outcome, LaunchFailedError)
        assert outcome.reason == "InstanceTerminated"
        assert world.dump()["launches"] == {"uid-of-web-1": 1}

    run_kwok(scenario, tmp_path)


# -- lost replies, crashes, several processes


def test_a_launch_repeated_after_a_lost_reply_answers_with_the_same_instance(tmp_path):
    async def scenario(world):
        world.cloud.disturbances.inject(KwokFault(kind=KwokFaultKind.LOST_REPLY, count=1))
        request = await world.request("web-1", node_class())
        first = await world.launch(request)
        assert type(first) is CloudProviderError
        assert len(world.dump()["instances"]) == 1
        second = await world.launch(request)
        assert isinstance(second, LaunchedInstance)
        dump = world.dump()
        assert dump["launches"] == {"uid-of-web-1": 1}
        assert [(c["operation"], c["result"]) for c in dump["calls"]] == [
            ("launch", "launched"),
            ("launch", "repeated"),
        ]
        assert set(world.nodes.nodes) == {"web-1"}

    run_kwok(scenario, tmp_path)


def test_a_reply_that_is_too_slow_is_a_late_launch_and_no_second_one(tmp_path):
    async def scenario(world):
        slow = KwokFault(kind=KwokFaultKind.SLOW_REPLY, delay=timedelta(minutes=10), count=1)
        world.cloud.disturbances.inject(slow)
        late = []
        world.providers.subscribe_late_launches(lambda r, o: late.append((r.token, o.provider_id)))
        request = await world.request("web-1", node_class())
        for _ in range(2):
            assert isinstance(await world.launch(request), CallPendingError)
        await world.clock.sleep(600)
        assert late == [("uid-of-web-1", "kwok://web-1")]
        assert world.dump()["launches"] == {"uid-of-web-1": 1}

    run_kwok(scenario, tmp_path)


def test_a_call_that_a_stop_overtakes_says_that_the_provider_has_stopped(tmp_path):
    async def scenario(world):
        world.cloud.disturbances.inject(
            KwokFault(
                kind=KwokFaultKind.SLOW_CALL,
                operation=CloudOperation.LIST,
                delay=timedelta(seconds=30),
            )
        )
        call = asyncio.create_task(world.providers.list_instances("kwok"))
        await world.clock.sleep(10)
        await world.providers.stop()
        with pytest.raises(CloudProviderError, match="the kwok provider has stopped") as raised:
            await call
        assert raised.value.__cause__ is None

    run_kwok(scenario, tmp_path)


def test_a_crash_between_launch_and_node_leaves_the_node_to_the_next_process(tmp_path):
    """The first process dies after the store's commit; the second creates the Node."""

    async def first(world):
        await world.providers.launch(await world.request("web-1", node_class()))

    async def second(world):
        await world.clock.sleep(1)  # its time begins where the first one's did
        await world.run_task("kwok", "nodes")
        assert world.nodes.nodes["web-1"].provider_id == "kwok://web-1"
        repeated = await world.launch(await world.request("web-1", node_class()))
        assert isinstance(repeated, LaunchedInstance)
        assert world.dump()["launches"] == {"uid-of-web-1": 1}

    nodes = FakeNodes()
    run_kwok(first, tmp_path, nodes=nodes)
    assert nodes.nodes == {}
    run_kwok(second, tmp_path, nodes=nodes)


def test_a_crash_between_node_and_its_note_creates_no_second_node(tmp_path):
    async def scenario(world):
        await launch(world)
        with world.plugin.store.transaction() as db:
            db.execute("UPDATE instances SET node_state = 'due', node_made_at = NULL")
        await world.run_task("kwok", "nodes")
        assert [i["nodeState"] for i in world.dump()["instances"]] == ["made"]
        assert set(world.nodes.nodes) == {"web-1"}

    run_kwok(scenario, tmp_path)


CHILD = """
import asyncio, sys
from pathlib import Path
from providers.kwok.tests.worlds import node_class, run_kwok

async def scenario(world):
    print("ready", flush=True)
    sys.stdin.readline()
    requests = [await world.request(f"web-{n}", node_class()) for n in range(20)]
    await asyncio.gather(*(world.launch(request) for request in requests))

run_kwok(scenario, Path(sys.argv[1]))
"""


def test_two_processes_share_one_cloud(tmp_path):
    """Both launch the same twenty tokens at once: twenty instances, each launched once."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
        assert child.returncode == 0

    async def look(world):
        dump = world.dump()
        assert dump["launches"] == {f"uid-of-web-{n}": 1 for n in range(20)}
        assert len(dump["instances"]) == 20
        assert len({call["process"] for call in dump["calls"]}) == 2

    run_kwok(look, tmp_path)


def test_a_failed_transaction_changes_nothing(tmp_path):
    async def scenario(world):
        def give_up(db):
            db.execute("DELETE FROM instances")
            raise RuntimeError("killed")

        await launch(world)
        with pytest.raises(RuntimeError), world.plugin.store.transaction() as db:
            give_up(db)
        assert len(world.dump()["instances"]) == 1

    run_kwok(scenario, tmp_path)


# -- adoption


def kwok_node(name, **fields):
    given = {
        "uid": f"uid-node-{name}",
        "provider_id": f"kwok://{name}",
        "labels": {
            "karpenter.sh/nodepool": "default",
            INSTANCE_TYPE: "c-2x-amd64-linux",
            ZONE: "test-zone-a",
            CAPACITY_TYPE: "spot",
        },
    }
    return NodeView(name=name, **(given | fields))


def test_nodes_unknown_to_the_store_are_adopted(tmp_path):
    """Another controller's cluster, or a lost state file: they can be listed and terminated."""
    owner = OwnerView(api_version="karpenter.sh/v1", kind="NodeClaim", name="old", uid="uid-old")

    async def scenario(world):
        world.nodes.nodes["old-node"] = kwok_node("old-node", owners=(owner,))
        (found,) = (await world.providers.list_instances("kwok")).instances
        assert (found.provider_id, found.node_claim, found.token) == (
            "kwok://old-node",
            "old",
            "uid-old",
        )
        assert (found.instance_type, found.zone) == ("c-2x-amd64-linux", "test-zone-a")
        outcome = await world.providers.terminate_leaked("kwok", "kwok://old-node")
        await world.settle()
        assert outcome is TerminationStatus.GONE
        assert world.nodes.nodes == {}
        assert (await world.providers.list_instances("kwok")).instances == ()

    run_kwok(scenario, tmp_path)


def test_an_adopted_instance_is_returned_without_a_listing(tmp_path):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        world.nodes.nodes["old"] = kwok_node("old")
        found = await world.providers.fetch(ref(request), "kwok://old")
        assert isinstance(found, Instance)
        assert found.token == ""

    run_kwok(scenario, tmp_path)


def test_an_instance_the_store_never_heard_of_ends_with_its_node(tmp_path):
    """Without a listing before; the claim's finalizer waits for the Node."""

    async def scenario(world):
        request = await world.request("web-1", node_class())
        world.nodes.nodes["old"] = kwok_node("old")
        outcome = await world.providers.terminate(ref(request), "kwok://old")
        await world.settle()
        assert outcome is TerminationStatus.GONE
        assert world.nodes.nodes == {}

    run_kwok(scenario, tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"provider_id": "aws:///us-east-1a/i-1"},
        {"labels": {}},
    ],
)
def test_nodes_of_others_are_ignored(tmp_path, fields):
    async def scenario(world):
        world.nodes.nodes["other"] = kwok_node("other", **fields)
        assert (await world.providers.list_instances("kwok")).instances == ()

    run_kwok(scenario, tmp_path)


def test_a_node_without_its_instance_is_not_adopted_again(tmp_path):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        await world.providers.terminate(ref(request), "kwok://web-1")
        assert set(world.nodes.nodes) == {"web-1"}
        assert (await world.providers.list_instances("kwok")).instances == ()
        await world.settle()
        assert world.nodes.nodes == {}

    run_kwok(scenario, tmp_path)


# -- termination


def test_termination_is_gone_at_once_and_takes_the_node_along(tmp_path):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        for _ in range(2):
            outcome = await world.providers.terminate(ref(request), "kwok://web-1")
            assert outcome is TerminationStatus.GONE
        await world.settle()
        assert world.nodes.nodes == {}
        found = await world.providers.fetch(ref(request), "kwok://web-1")
        assert isinstance(found, NodeClaimNotFoundError)
        assert [i["state"] for i in world.dump()["terminated"]] == ["terminated"]

    run_kwok(scenario, tmp_path)


@pytest.mark.parametrize(
    ("provider_ids", "expected"),
    [
        ((), True),
        (("kwok://web-1",), True),
        (("kwok://web-1", "kwok://other"), False),
        (("kwok://other", "kwok://web-1"), False),
    ],
)
def test_a_batch_is_listed_only_if_each_of_its_instances_is(tmp_path, provider_ids, expected):
    """Else the others are taken over from their Nodes first."""

    async def scenario(world):
        await world.launch(await world.request("web-1", node_class()))
        assert world.cloud.knows_all(provider_ids) is expected

    run_kwok(scenario, tmp_path)


def test_a_termination_delay_is_seen_as_started_then_gone(tmp_path):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        answers = []
        for _ in range(4):
            answers.append(await world.providers.terminate(ref(request), "kwok://web-1"))
            found = await world.providers.fetch(ref(request), "kwok://web-1")
            if isinstance(found, Instance):
                assert found.terminating
            await world.clock.sleep(1)
        assert answers == [TerminationStatus.STARTED] * 3 + [TerminationStatus.GONE]

    run_kwok(scenario, tmp_path, kwok_termination_delay=timedelta(seconds=2.5))


def test_an_instance_terminated_before_its_node_came_never_gets_one(tmp_path):
    async def scenario(world):
        slow = node_class("slow", registration_delay="5s")
        request = await world.request("web-1", slow)
        await world.launch(request)
        await world.providers.terminate(ref(request), "kwok://web-1")
        await world.clock.sleep(20)
        await world.settle()
        assert ("create", "web-1") not in world.nodes.writes
        assert world.nodes.nodes == {}

    run_kwok(scenario, tmp_path)


def test_a_node_the_core_already_deleted_costs_no_request(tmp_path):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        await world.clock.sleep(60)
        world.nodes.nodes.clear()
        await world.providers.terminate(ref(request), "kwok://web-1")
        await world.settle()
        assert world.nodes.writes == [("create", "web-1")]
        assert [i["nodeState"] for i in world.dump()["terminated"]] == ["removed"]

    run_kwok(scenario, tmp_path)


# -- faults


def test_a_stock_out_is_avoided_or_reported(tmp_path):
    """The next cheapest is launched; when none is left, the outcome names what was tried."""

    async def scenario(world):
        types = only("std1.large")
        first = await launch(world, "web-1", requirements=[types, SPOT])
        out = KwokFault(
            kind=KwokFaultKind.STOCK_OUT, instance_types=("std1.*",), zones=(first.zone,), count=1
        )
        world.cloud.disturbances.inject(out)
        second = await launch(world, "web-2", requirements=[types, SPOT])
        assert second.zone != first.zone
        sold_out = OfferingKey(instance_type="std1.large", zone=first.zone, capacity_type="spot")
        assert [shortage.offerings for shortage in second.shortages] == [(sold_out,)]
        third = await launch(world, "web-3", requirements=[types, SPOT])
        assert (third.zone, third.shortages) == (first.zone, ())
        world.cloud.disturbances.inject(
            KwokFault(kind=KwokFaultKind.STOCK_OUT, capacity_types=("spot",))
        )
        refused = await launch(world, "web-4", requirements=[types, SPOT])
        assert isinstance(refused, InsufficientCapacityError)
        assert OfferingKey(
            instance_type="std1.large", zone=first.zone, capacity_type="spot"
        ) in set(refused.offerings)
        assert "no capacity for std1.large spot in test-zone-" in str(refused)
        world.cloud.disturbances.clear()
        assert isinstance(await launch(world, "web-5", requirements=[types]), LaunchedInstance)
        assert "uid-of-web-4" not in world.dump()["launches"]

    run_kwok(scenario, tmp_path)


def test_throttling_does_nothing_and_says_when_to_come_back(tmp_path):
    async def scenario(world):
        for operation in CloudOperation:
            world.cloud.disturbances.inject(
                KwokFault(
                    kind=KwokFaultKind.THROTTLE,
                    operation=operation,
                    retry_after=timedelta(seconds=7),
                    count=1,
                )
            )
        request = await world.request("web-1", node_class())
        refused = await world.launch(request)
        assert isinstance(refused, ThrottledError)
        assert refused.retry_after == timedelta(seconds=7)
        assert isinstance(await world.providers.fetch(ref(request), "x"), ThrottledError)
        assert isinstance(await world.providers.terminate(ref(request), "x"), ThrottledError)
        with pytest.raises(ThrottledError):
            await world.providers.list_instances("kwok")
        assert world.dump()["calls"] == []
        assert isinstance(await world.launch(request), LaunchedInstance)

    run_kwok(scenario, tmp_path)


def test_calls_take_their_time(tmp_path):
    async def scenario(world):
        world.cloud.disturbances.inject(
            KwokFault(kind=KwokFaultKind.SLOW_CALL, delay=timedelta(seconds=3), count=1)
        )
        times = []
        for name in ("web-1", "web-2"):
            start = world.clock.monotonic()
            await launch(world, name)
            times.append(round(world.clock.monotonic() - start, 1))
        assert times == [5.0, 2.0]

    run_kwok(scenario, tmp_path, kwok_launch_latency=timedelta(seconds=2))


def test_a_partial_listing_says_so(tmp_path):
    async def scenario(world):
        for name in ("web-1", "data-1"):
            await launch(world, name)
        world.cloud.disturbances.inject(
            KwokFault(kind=KwokFaultKind.PARTIAL_LISTING, node_claims=("web-*",), count=1)
        )
        partial = await world.providers.list_instances("kwok")
        assert ([i.node_claim for i in partial.instances], partial.complete) == (["data-1"], False)
        whole = await world.providers.list_instances("kwok")
        assert (len(whole.instances), whole.complete) == (2, True)

    run_kwok(scenario, tmp_path)


def test_a_token_in_progress_is_refused_until_its_instance_is_listed(tmp_path):
    """The first request is carried out; the refusals do not say that nothing was done."""

    async def scenario(world):
        inject = world.cloud.disturbances.inject
        inject(KwokFault(kind=KwokFaultKind.LOST_REPLY, count=1))
        inject(KwokFault(kind=KwokFaultKind.TOKEN_IN_PROGRESS, node_claims=("web-*",), count=2))
        request = await world.request("web-1", node_class())
        outcomes = [await world.launch(request) for _ in range(4)]
        assert [type(outcome) for outcome in outcomes] == [
            CloudProviderError,
            CloudProviderError,
            CloudProviderError,
            LaunchedInstance,
        ]
        assert "the request with token uid-of-web-1 is still in progress" in str(outcomes[1])
        assert world.dump()["launches"] == {request.token: 1}

    run_kwok(scenario, tmp_path)


def test_prices_move_while_a_fault_says_so(tmp_path):
    """Those of matching offerings alone; two faults multiply, and afterwards all is as before."""

    async def scenario(world):
        async def prices():
            return {
                (it.name, offering.zone, offering.capacity_type): offering.price.amount
                for it in await world.catalogue(node_class())
                for offering in it.offerings
            }

        before = await prices()
        spot = {"kind": KwokFaultKind.PRICE, "capacity_types": ("spot",)}
        world.cloud.disturbances.inject(KwokFault(**spot, percent=150))
        world.cloud.disturbances.inject(KwokFault(**spot, percent=200, instance_types=("std1.*",)))
        factors = {key: amount / before[key] for key, amount in (await prices()).items()}
        for (name, _, capacity_type), factor in factors.items():
            wanted = (3.0 if name.startswith("std1.") else 1.5) if capacity_type == "spot" else 1.0
            assert factor == pytest.approx(wanted), name
        assert set(map(round, factors.values())) == {1, 2, 3}
        world.cloud.disturbances.clear()
        assert await prices() == before

    run_kwok(scenario, tmp_path)


def test_a_reclaimed_instance_is_announced_until_acknowledged_and_then_taken(tmp_path):
    async def scenario(world):
        await launch(world, "spot-0", requirements=[only("std1.xlarge"), SPOT])
        await world.clock.sleep(1)
        for name in ("kept-1", "spot-1", "spot-2"):
            await launch(world, name, requirements=[only("std1.large"), SPOT])
        world.cloud.disturbances.inject(
            KwokFault(
                kind=KwokFaultKind.RECLAIM,
                node_claims=("spot-*",),
                instance_types=("std1.large",),
                count=1,
            )
        )
        (first,) = await world.providers.poll_interruptions("kwok")
        assert (first.provider_id, first.kind.value) == ("kwok://spot-1", "SpotInterruption")
        assert first.deadline - world.clock.now() == timedelta(minutes=2)
        assert await world.providers.poll_interruptions("kwok") == (first,)
        await world.providers.acknowledge_interruptions("kwok", [first.id])
        assert await world.providers.poll_interruptions("kwok") == ()
        assert len((await world.providers.list_instances("kwok")).instances) == 4
        await world.clock.sleep(121)
        await world.run_task("kwok", "nodes")
        left = {"kept-1", "spot-0", "spot-2"}
        assert {i["nodeClaim"] for i in world.dump()["instances"]} == left
        assert set(world.nodes.nodes) == left

    run_kwok(scenario, tmp_path)


def test_faults_are_read_from_a_file_whenever_it_changes(tmp_path):
    """Counts go on where they were when the file is written again."""
    file = tmp_path / "faults.json"

    async def scenario(world):
        assert isinstance(await launch(world, "web-1"), LaunchedInstance)
        fault = {"fault": "stock-out", "count": 2}
        file.write_text(json.dumps([fault]))
        assert isinstance(await launch(world, "web-2"), InsufficientCapacityError)
        file.write_text(json.dumps([fault, {"fault": "throttle", "operation": "list"}]))
        assert isinstance(await launch(world, "web-3"), InsufficientCapacityError)
        assert isinstance(await launch(world, "web-4"), LaunchedInstance)
        file.write_text("[{")
        assert isinstance(await launch(world, "web-5"), LaunchedInstance)
        with pytest.raises(ThrottledError):
            await world.providers.list_instances("kwok")
        file.unlink()
        assert (await world.providers.list_instances("kwok")).complete

    run_kwok(scenario, tmp_path, kwok_faults_file=str(file))


# -- settings, dump


def test_the_dump_lists_every_instance_for_tests(tmp_path):
    async def scenario(world):
        await launch(world, requirements=[only("std1.large"), SPOT])
        return world.clock.now()

    now = run_kwok(scenario, tmp_path)
    dump = dump_file(str(tmp_path / "kwok.sqlite3"), now=now)
    (instance,) = dump["instances"]
    assert {
        "providerID": "kwok://web-1",
        "token": "uid-of-web-1",
        "nodeClaim": "web-1",
        "state": "running",
        "instanceType": "std1.large",
        "capacityType": "spot",
        "nodeState": "made",
    }.items() <= instance.items()
    assert (dump["terminated"], dump["launches"]) == ([], {"uid-of-web-1": 1})


def test_the_dump_can_be_printed_from_a_shell(tmp_path):
    async def scenario(world):
        await launch(world)

    run_kwok(scenario, tmp_path)
    command = [sys.executable, "-m", "karpenter_provider_kwok", "dump"]
    printed = subprocess.run(
        [*command, str(tmp_path / "kwok.sqlite3")], capture_output=True, text=True, check=True
    )
    assert json.loads(printed.stdout)["launches"] == {"uid-of-web-1": 1}
    missing = subprocess.run(
        [*command, str(tmp_path / "none")], capture_output=True, text=True, check=False
    )
    assert missing.returncode == 2
    assert "cannot be used" in missing.stderr


def test_a_store_in_memory_is_gone_with_the_process(tmp_path):
    async def scenario(world):
        await launch(world)
        assert len(world.dump()["instances"]) == 1

    run_kwok(scenario, tmp_path, kwok_state_file=":memory:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"not a database at all, but long enough", None])
def test_a_state_file_that_is_none_stops_the_start(tmp_path, content):
    file = tmp_path / "state"
    if content is not None:
        file.write_bytes(content * 100)
    else:
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()

    async def scenario(world):
        pytest.fail("started")

    with pytest.raises(SettingsError, match=r"kwok state file .*state "):
        run_kwok(scenario, tmp_path, kwok_state_file=str(file))


def test_a_bad_catalogue_stops_the_start(tmp_path):
    file = tmp_path / "types.json"
    file.write_text('[{"name": "a", "offerings": [{"Price": "x"}]}]')

    async def scenario(world):
        pytest.fail("started")

    with pytest.raises(Exception, match=r'types\.json: entry 0 "a": resources') as error:
        run_kwok(scenario, tmp_path, instance_types_file=str(file))
    assert type(error.value).__name__ == "BadInputError"


def test_a_negative_delay_stops_the_start(tmp_path):
    async def scenario(world):
        pytest.fail("started")

    with pytest.raises(SettingsError, match="--kwok-launch-latency: must be a duration"):
        run_kwok(scenario, tmp_path, kwok_launch_latency=timedelta(seconds=-1))


def test_labels_of_the_catalogue_are_well_known(tmp_path):
    async def scenario(world):
        labels = world.providers.label_classes()
        assert "karpenter.kwok.sh/instance-size" in labels.well_known
        assert "topology.kubernetes.io/region" in labels.well_known
        assert labels.restricted_domains == {"karpenter.kwok.sh"}

    run_kwok(scenario, tmp_path)


def test_many_launches_go_out_in_one_transaction(tmp_path):
    async def scenario(world):
        requests = [await world.request(f"web-{n}", node_class()) for n in range(60)]
        outcomes = await asyncio.gather(*(world.launch(request) for request in requests))
        assert len({outcome.provider_id for outcome in outcomes}) == 60
        await world.settle()
        assert len(world.nodes.nodes) == 60

    run_kwok(scenario, tmp_path)


@pytest.mark.parametrize(("name", "refused"), [("web", False), ("evil", True)])
def test_a_node_registers_under_the_name_of_its_instance_alone(name, refused):
    claim = state_builders.node_claim("web", stage="Launched")

    answer = KwokProvider().karpenter_gate_registration(
        claim, state_builders.node(name, claim=claim)
    )

    assert (answer is not None) == refused


def test_a_dump_lets_go_of_the_file(tmp_path, monkeypatch):
    """Whether it succeeds or not: long tests dump a file hundreds of times."""
    opened = []
    InstanceStore(str(tmp_path / "kwok.sqlite3")).close()

    def made(*args, **options):
        opened.append(InstanceStore(*args, **options))
        return opened[-1]

    monkeypatch.setattr("karpenter_provider_kwok.dump.InstanceStore", made)
    assert dump_file(str(tmp_path / "kwok.sqlite3"), now=datetime.now(UTC))["instances"] == []
    with pytest.raises(CloudProviderError, match="stopped"), opened[0].reading():
        pass


def test_a_start_that_fails_closes_the_store(tmp_path, monkeypatch):
    closed, close = [], InstanceStore.close

    def noted(store):
        closed.append(store)
        close(store)

    monkeypatch.setattr(InstanceStore, "close", noted)
    faults = tmp_path / "faults.json"
    faults.write_text("[")

    async def scenario(_world):
        raise AssertionError("it has started")

    with pytest.raises(BadInputError):
        run_kwok(scenario, tmp_path, kwok_faults_file=str(faults))
    assert len(closed) == 1


def test_a_listing_lags_by_the_longest_of_its_delays(tmp_path):
    async def scenario(world):
        await launch(world)
        for seconds in (5, 60):
            fault = KwokFault(kind=KwokFaultKind.LAGGING_LISTING, delay=timedelta(seconds=seconds))
            world.plugin.cloud.disturbances.inject(fault)
        await world.clock.sleep(10)
        assert world.plugin.cloud.list().instances == ()
        await world.clock.sleep(51)
        assert len(world.plugin.cloud.list().instances) == 1

    run_kwok(scenario, tmp_path)


def test_the_folder_of_the_store_is_made(tmp_path):
    """The first process of a machine has none; the next one finds it, and the instance."""

    async def scenario(world):
        assert isinstance(await launch(world), LaunchedInstance)
        assert len(world.plugin.cloud.list().instances) == 1

    folder = tmp_path / "cache" / "kwok"
    for _ in range(2):
        run_kwok(scenario, folder)
        assert folder.is_dir()
