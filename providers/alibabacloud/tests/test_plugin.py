"""The plug-in as a whole: its start, and facts that its parts share (case 98)."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.errors import AuthError, InsufficientCapacityError, SettingsError
from karpenter_core.provider.contract import (
    ClusterFacts,
    LaunchedInstance,
    LaunchRequest,
    ProviderContext,
)
from karpenter_core.testing.provider_world import FakeNodes, node_pool_for
from karpenter_provider_alibabacloud.plugin import AlibabaCloudProvider
from karpenter_provider_alibabacloud.sdk import CloudClients
from karpenter_provider_alibabacloud.settings import SETTINGS
from karpenter_simulated_alibabacloud.testing import node_class_for
from providers.alibabacloud.tests.instances.cluster_world import SPOT, TYPE, ZONE_B, World
from providers.alibabacloud.tests.launch.processes import class_of
from providers.alibabacloud.tests.manual_clock import NOON, HandClock

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def woken():
    return []


@pytest.fixture
def context(cloud, tmp_path, woken):
    from karpenter_simulated_alibabacloud.testing import settings_for

    nodes, clock = FakeNodes(), HandClock()
    clock.passed = cloud.time() - NOON  # the cloud's tokens end by it
    settings = {each.flag.removeprefix("--"): each.default for each in SETTINGS}
    return ProviderContext(
        settings={**settings, **settings_for(cloud)},
        clock=clock,
        cache_folder=tmp_path,
        metrics=CollectorRegistry(),
        cluster=ClusterFacts(),
        nodes=nodes,
        read_nodes=nodes,
        wake=woken.append,
    )


def having(context, **settings):
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return replace(context, settings={**context.settings, **named})


@pytest.fixture
def plugin():
    made = AlibabaCloudProvider()
    yield made
    made.karpenter_stop()


def test_without_a_cluster_id_it_does_not_start(context, plugin):
    """Case 98."""
    with pytest.raises(SettingsError, match="--cluster-id: must be given"):
        plugin.karpenter_start(having(context, cluster_id=""))


def test_without_a_region_it_does_not_start_where_no_metadata_service_answers(context, plugin):
    """Case 98: within five seconds."""
    started = time.monotonic()

    with pytest.raises(SettingsError, match="REGION_ID"):
        plugin.karpenter_start(having(context, region_id="", metadata_endpoint=NOBODY))

    assert time.monotonic() - started < 5


def test_without_a_region_setting_instance_metadata_counts(cloud, context, plugin):
    plugin.karpenter_start(having(context, region_id="", metadata_endpoint=cloud.metadata_endpoint))

    assert plugin.running.clients.region == cloud.account.region


def test_a_price_file_that_cannot_be_read_is_said_at_the_start(context, plugin):
    with pytest.raises(SettingsError, match="no-such-file"):
        plugin.karpenter_start(having(context, price_file="/no-such-file"))

    plugin.karpenter_start(context)


def test_a_start_that_fails_late_closes_what_it_opened(context, plugin, monkeypatch):
    """Whatever fails: not only settings that cannot be used."""
    closed = []

    def broken(_services):
        raise OSError("no space left")

    monkeypatch.setattr("karpenter_provider_alibabacloud.started_provider.ProviderParts", broken)
    monkeypatch.setattr(CloudClients, "close", lambda _: closed.append(1))

    with pytest.raises(OSError, match="no space left"):
        plugin.karpenter_start(context)

    assert not list(context.metrics.collect())
    assert closed == [1]


def test_the_start_makes_no_cloud_call(cloud, context, plugin):
    plugin.karpenter_start(context)

    assert plugin.running.tasks()
    assert not cloud.calls.all


class Launching:
    """Returns nothing, or the given result."""

    def __init__(self):
        self.outcome = InsufficientCapacityError("sold out")

    def launch(self, requests):
        return [self.outcome for _ in requests]


def test_stock_is_read_again_after_three_failed_launches(cloud, context, plugin, woken):
    """Section 3.1: after three failures in a row, however lately it was read; once a minute at most."""
    plugin.karpenter_start(context)
    running = plugin.running
    running.parts.launch.foreign = Launching()
    request = LaunchRequest(node_claim=None, node_class=node_class_for(cloud), instance_types=())
    refresh = next(task.run for task in running.tasks() if task.name == "stock")
    refresh()
    asked = cloud.calls.count("DescribeAvailableResource")

    running.launch([request] * 2)
    assert woken == []

    running.launch([request])
    running.launch([request] * 10)
    assert woken.count("stock") == 1
    refresh()
    assert cloud.calls.count("DescribeAvailableResource") == 2 * asked

    context.clock.forward(minutes=1)
    running.launch([request] * 3)
    assert woken.count("stock") == 2


def test_types_are_requested_again_but_rarely(cloud, context, plugin, woken):
    """Section 3.1: what the region sells may be another; that is a dozen calls."""
    plugin.karpenter_start(context)
    running = plugin.running
    running.parts.launch.foreign = Launching()
    request = LaunchRequest(node_claim=None, node_class=node_class_for(cloud), instance_types=())
    refresh = next(task.run for task in running.tasks() if task.name == "instance-types")
    refresh()
    asked = cloud.calls.count("DescribeInstanceTypes")
    refresh()
    assert cloud.calls.count("DescribeInstanceTypes") == asked

    running.launch([request] * 3)
    assert "instance-types" in woken
    for _ in range(2):
        refresh()
        assert cloud.calls.count("DescribeInstanceTypes") == 2 * asked

    for minutes, again in ((29, False), (1, True)):
        woken.clear()
        context.clock.forward(minutes=minutes)
        running.launch([request] * 3)
        assert ("instance-types" in woken) is again


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "an outcome"])
def test_a_denied_launch_is_recorded_for_its_node_class(cloud, context, plugin, raised):
    """Whether all of them were refused at once, or each."""
    plugin.karpenter_start(context)
    error = AuthError("no", action="ecs:DescribeInstances")

    class Refused:
        def launch(self, requests):
            if raised:
                raise error
            return [error for _ in requests]

    plugin.running.parts.launch.foreign = Refused()
    request = LaunchRequest(node_claim=None, node_class=node_class_for(cloud), instance_types=())
    with pytest.raises(AuthError) if raised else nullcontext():
        plugin.running.launch([request])

    noted = plugin.running.parts.node_class.refused_launches.of("default")
    assert noted.reason == "DescribeInstancesAuthCheckFailed"


def test_a_failed_type_listing_raises_the_same_error_each_time(cloud, context, plugin):
    """It is in the NodePool's status: with request ids it would change at every pass."""
    plugin.karpenter_start(context)
    cloud.deny("DescribeClusterDetail")
    node_class, reported = node_class_for(cloud), set()
    for _ in range(2):
        with pytest.raises(AuthError, match="cs:DescribeClusterDetail") as raised:
            plugin.karpenter_list_instance_types(node_pool_for(node_class), node_class)
        reported.add(str(raised.value))

    assert len(reported) == 1


def test_instances_belong_to_the_nodeclaims_that_name_them(cloud, context, plugin):
    """The tags alone would assign them in their order."""
    claims = {}
    plugin.karpenter_start(replace(context, read_claims=lambda: claims))
    world = World(cloud, plugin.running.clients)
    low, high = world.launch("web-one", "web-two")
    claims["web-one"] = world.claim("web-one", high)

    listed = plugin.karpenter_list_instances().instances

    assert {each.provider_id: each.node_claim for each in listed} == {
        low: "web-two",
        high: "web-one",
    }


def test_every_period_is_above_zero_and_every_name_its_own(context, plugin):
    plugin.karpenter_start(context)
    tasks = plugin.running.tasks()

    assert len({task.name for task in tasks}) == len(tasks)
    assert all(task.period > timedelta() for task in tasks)


def test_every_process_reads_its_own_facts_and_the_leader_runs_the_other_tasks(context, plugin):
    """The types at a time of their own: controllers that started together spread their calls."""
    plugin.karpenter_start(context)
    found = {
        task.name: (task.period, task.leader_only, task.run.__name__)
        for task in plugin.running.tasks()
    }
    minute = timedelta(minutes=1)
    period, *types = found.pop("instance-types")
    assert timedelta(hours=12) * 0.9 <= period <= timedelta(hours=12) * 1.1
    assert types == [False, "_refresh_types"]
    assert {name: found[name] for name in ("stock", "prices", "system-disks", "late-taints")} == {
        "stock": (5 * minute, False, "_refresh_stock"),
        "prices": (minute, False, "_refresh_prices"),
        "system-disks": (5 * minute, True, "_refresh_disks"),
        "late-taints": (minute, True, "run"),
    }


def task_of(plugin, name):
    return next(task.run for task in plugin.karpenter_declare_tasks() if task.name == name)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("instance-types", "region"),
        ("stock", "stock"),
        ("prices", "price_reader"),
        ("system-disks", "system_disks"),
    ],
)
def test_a_task_renews_the_answers_that_it_is_named_after(context, plugin, monkeypatch, name, part):
    plugin.karpenter_start(context)
    renewed = []
    reader = type(getattr(plugin.running.parts.catalogue, part))
    monkeypatch.setattr(reader, "refresh", lambda *_, **__: renewed.append(part))

    task_of(plugin, name)()

    assert renewed == [part]


class TestOnePartTellsAnother:
    """Facts that one hook learns are used by the others."""

    @pytest.fixture
    def world(self, cloud, context, plugin):
        plugin.karpenter_start(context)
        return World(cloud, plugin.running.clients)

    def test_a_listing_announces_foreign_stops(self, cloud, plugin, world):
        (stopped,) = world.launch("web-one")
        cloud.stop_instance(stopped)

        plugin.karpenter_list_instances()

        (said,) = plugin.karpenter_poll_interruptions()
        assert said.provider_id == stopped

    def test_a_reclaimed_spot_offering_is_masked_for_a_while(self, cloud, plugin, world):
        (taken,) = world.launch("web-one", **SPOT)
        cloud.reclaim(taken)

        task_of(plugin, "spot-reclaims")()

        marks = plugin.running.parts.catalogue.unavailable_offerings.view(
            now=cloud.time()
        ).offerings
        assert {mark[:3] for mark in marks} == {(TYPE, ZONE_B, "spot")}

    def test_a_later_event_is_drift(self, cloud, plugin, world):
        (found,) = world.launch("web-one")
        cloud.schedule_event(found)
        node_class = plugin_class(cloud, world.cloud.instance(found))

        task_of(plugin, "system-events")()
        (drift,) = plugin.karpenter_detect_drift([world.claim("web-one", found)], node_class)

        assert drift.reason == "SystemEventScheduled"

    def test_listed_instances_are_not_read_again_for_tags(self, cloud, plugin, world):
        (found,) = world.launch("web-one")
        node = world.join(found)
        cloud.tag(found, {"Name": node.name})
        plugin.karpenter_list_instances()
        cloud.calls.clear()

        plugin.karpenter_sync_instance(world.claim("web-one", found), node)

        assert not cloud.calls.of("DescribeInstances")

    def test_launches_joins_and_ends_reach_the_watch_over_registrations(self, cloud, plugin, world):
        """By them a script that does not join nodes is fetched anew."""
        reported = []

        class Recorder:
            def note_launched(self, ids):
                reported.append(("launched", *ids))

            def note_registered(self, provider_id):
                reported.append(("registered", provider_id))

            def note_terminated(self, ids):
                reported.append(("terminated", *ids))

        (found,) = world.launch("web-one")
        outcome = LaunchedInstance(
            provider_id=found,
            instance_type=TYPE,
            zone=ZONE_B,
            capacity_type="on-demand",
            capacity={},
            allocatable={},
        )
        parts = plugin.running.parts
        parts.node_class.registrations, parts.launch.foreign = Recorder(), Launching()
        parts.launch.foreign.outcome = outcome
        request = LaunchRequest(
            node_claim=None, node_class=node_class_for(cloud), instance_types=()
        )

        plugin.karpenter_launch_instances([request])
        plugin.karpenter_sync_instance(world.claim("web-one", found), world.join(found))
        plugin.karpenter_terminate_instances([found])

        assert reported == [("launched", found), ("registered", found), ("terminated", found)]

    def test_a_registered_node_teaches_the_memory_of_its_type(self, cloud, plugin, world):
        (found,) = world.launch("web-one")
        learned = []

        class Types:
            def learn_memory(self, node_class, **info):
                learned.append((node_class.name, info))

        plugin.running.parts.catalogue.types = Types()
        plugin.running.node_classes.note(plugin_class(cloud, cloud.instance(found)))
        node = world.join(found, capacity={"memory": 7 * 2**30})

        plugin.karpenter_sync_instance(world.claim("web-one", found), node)

        ((name, info),) = learned
        assert (name, info["instance_type"], info["memory_bytes"]) == ("default", TYPE, 7 * 2**30)

    def test_prices_that_move_are_read_again(self, cloud, context, plugin, world):
        """List prices move from day to day, those of spot by the hour."""
        parts = plugin.running.parts
        task_of(plugin, "instance-types")()
        info = parts.catalogue.region.current()[0][TYPE]
        cloud.prices.walk = cloud.prices.on_demand_walk = 0.2
        reported = set()
        for _ in range(2):
            parts.catalogue.price_reader.consider([TYPE])
            parts.catalogue.price_reader.refresh()
            on_demand = parts.catalogue.prices.on_demand(info).amount
            spot = parts.catalogue.prices.spot(info, ZONE_B, hours=1).amount
            assert on_demand == pytest.approx(cloud.prices.on_demand(TYPE))
            assert spot == pytest.approx(cloud.prices.spot(TYPE, ZONE_B))
            reported.add((on_demand, spot))
            context.clock.forward(days=1)
            cloud.time.advance(24 * 3600)

        assert len(reported) == 2

    def test_a_deleted_node_class_is_forgotten(self, cloud, plugin, world):
        node_class = node_class_for(cloud)
        plugin.running.node_classes.note(node_class)

        plugin.karpenter_finalize_node_class(node_class)

        assert plugin.running.node_classes.node_class(node_class.name) is None


def plugin_class(cloud, instance):
    """Return the NodeClass that an instance was launched from, as discovery left it."""
    status = {
        "images": [{"id": instance.image_id, "requirements": []}],
        "securityGroups": [{"id": each} for each in instance.security_groups],
        "vSwitches": [{"id": instance.vswitch_id, "zoneID": ZONE_B}],
    }
    return class_of(cloud, status=status)
