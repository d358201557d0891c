"""A cloud of a few lines on the simulator kit has faults, stock, throttling, late failures and a demo."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, RemoteDisconnected

import pytest

from karpenter_core.errors import OfferingKey
from karpenter_core.provider.kit.demo_cloud import DemoFeature
from karpenter_core.provider.kit.simulated.capacity import SimulatedQuota
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.kubelets import KubeletFaultKind
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_core.provider.kit.simulated.rest import Announcement, RestRoute
from karpenter_core.provider.kit.simulated.server import HttpRequest
from tests.provider.rest_cloud import SampleCloud, SampleDemo

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NORTH = InstancePool(zone="north")
LARGE = {"size": "large", "zone": "north", "tags": {}}


@pytest.fixture
def cloud():
    with SampleCloud(clock=lambda: NOON) as started:
        yield started


@pytest.fixture
def call(cloud):
    """Send a request; return status, decoded body and headers."""

    def send(method, path="/vms", body=None):
        connection = HTTPConnection(cloud.endpoint, timeout=20)
        try:
            connection.request(method, path, body=json.dumps(body) if body else None)
            response = connection.getresponse()
            return response.status, json.loads(response.read()), dict(response.getheaders())
        finally:
            connection.close()

    return send


@pytest.fixture
def create(call):
    def made(**fields):
        status, body, _ = call("POST", body={**LARGE, **fields})
        assert status == 201, body
        return body["id"]

    return made


def states(call):
    return {vm["id"]: vm["state"] for vm in call("GET")[1]["vms"]}


def test_an_unknown_call_is_refused_and_not_logged(cloud, call):
    status, body, _ = call("GET", "/disks")

    assert (status, body["code"], cloud.calls.all) == (404, "not-found", ())


def test_an_instance_is_pending_then_runs_then_terminates_then_is_gone(cloud, call, create):
    cloud.behaviour.pending_seconds = 10
    cloud.behaviour.terminating_seconds = 20
    vm = create()
    seen = [states(call)]
    cloud.time.advance(10)
    seen.append(states(call))
    call("DELETE", f"/vms/{vm}")
    seen.append(states(call))
    cloud.time.advance(20)

    assert [each[vm] for each in seen] == ["pending", "running", "terminating"]
    assert states(call) == {}


def test_a_new_instance_is_described_after_the_lag(cloud, call, create):
    cloud.behaviour.invisible_seconds = 5
    vm = create()
    early = states(call)
    cloud.time.advance(5)

    assert (early, list(states(call))) == ({}, [vm])


def test_a_launch_that_fails_late_is_accepted_and_fails_then(cloud, call, create):
    cloud.fail_late(code="allocation-failed", after_seconds=30, pool=NORTH, times=1)
    cloud.behaviour.pending_seconds = 60
    failing, good = create(), create()
    early = states(call)
    cloud.time.advance(60)

    assert early == {failing: "pending", good: "pending"}
    assert states(call) == {failing: "failed", good: "running"}
    assert call("GET")[1]["vms"][0]["error"] == "allocation-failed"
    assert list(cloud.nodes()) == [f"rest://{good}"]


def test_a_failed_launch_uses_no_stock_and_uses_quota_until_it_is_deleted(cloud, call, create):
    error = CloudError("quota", "no more", status=409)
    cloud.fail_late(code="allocation-failed", times=1)
    failed = create()
    cloud.capacity.stock(NORTH, 1)

    assert cloud.capacity.left(cloud.instance(failed).pool) == 1

    cloud.capacity.set_quota("vms", SimulatedQuota(amount=1, covers=NORTH.holds, error=error))
    assert call("POST", body=LARGE)[1]["code"] == "quota"
    call("DELETE", f"/vms/{failed}")
    assert call("POST", body=LARGE)[0] == 201


def test_a_pool_is_sold_out_for_as_long_as_the_context(cloud, call):
    with cloud.capacity.sell_out(zone="north"):
        refused = call("POST", body=LARGE)
        elsewhere = call("POST", body={**LARGE, "zone": "south"})

    assert (refused[0], refused[1]["code"]) == (409, "sold-out")
    assert elsewhere[0] == 201
    assert call("POST", body=LARGE)[0] == 201


def test_a_pool_fault_refuses_as_often_as_was_said(cloud, call):
    cloud.fail_pools(code="overconstrained", zone="north", times=1)

    codes = [call("POST", body=LARGE)[1].get("code") for _ in range(2)]

    assert codes == ["overconstrained", None]


def test_a_throttled_operation_class_returns_the_time_of_the_next_call(cloud, call):
    cloud.throttling.set({"write": SimulatedCallRate(bucket=1, refill=0.25)})
    call("POST", body=LARGE)

    status, _, headers = call("POST", body=LARGE)

    assert (status, headers["Retry-After"]) == (429, "4")
    assert call("GET")[0] == 200
    cloud.time.advance(4)
    assert call("POST", body=LARGE)[0] == 201


def test_faults_refuse_deny_lose_and_cut(cloud, call):
    with cloud.fail("create", code="internal", status=500, times=None):
        assert call("POST", body=LARGE)[0] == 500
    with cloud.deny("*"):
        assert call("GET")[0] == 403
    with cloud.cut_off(), pytest.raises((RemoteDisconnected, ConnectionError)):
        call("POST", body=LARGE)
    assert states(call) == {}
    with cloud.lose_replies("create"), pytest.raises((RemoteDisconnected, ConnectionError)):
        call("POST", body=LARGE)
    assert len(states(call)) == 1
    outcomes = [each.outcome for each in cloud.calls.of("create")]
    assert outcomes == ["internal", "unreachable", "lost-reply"]


def test_a_node_joins_after_the_boot(cloud, create):
    cloud.behaviour.boot_seconds = 30
    vm = create()
    early = cloud.node(vm)
    cloud.time.advance(30)
    node = cloud.node(f"rest://{vm}")

    assert early is None
    assert node["spec"]["providerID"] == f"rest://{vm}"
    assert node["spec"]["taints"] == [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]
    assert node["status"]["allocatable"]["cpu"] == "3900m"
    assert "conditions" not in node["status"]


@pytest.mark.parametrize(
    ("kind", "seconds", "joins", "later"),
    [
        (KubeletFaultKind.NEVER_JOINS, 0, False, False),
        (KubeletFaultKind.SLOW, 60, False, True),
        (KubeletFaultKind.NEVER_READY, 0, True, True),
    ],
)
def test_kubelets_of_a_pool_join_late_or_never(cloud, create, kind, seconds, joins, later):
    cloud.kubelets.fault(kind, NORTH, seconds=seconds)
    vm, other = create(), create(zone="south")

    assert (cloud.node(vm) is not None, cloud.node(other) is not None) == (joins, True)
    cloud.time.advance(60)
    assert (cloud.node(vm) is not None) is later


def test_a_kubelet_that_never_gets_ready_says_so_in_its_node(cloud, create):
    vm = create()
    with cloud.kubelets.fault(KubeletFaultKind.NEVER_READY):
        (condition,) = cloud.node(vm)["status"]["conditions"]

    assert (condition["type"], condition["status"]) == ("Ready", "False")
    assert "conditions" not in cloud.node(vm)["status"]


def test_an_interruption_is_announced_before_the_instance_is_taken(cloud, call, create):
    vm = create()

    ends_at = cloud.reclaim(vm, notice_seconds=30)

    assert ends_at == NOON + timedelta(seconds=30)
    assert cloud.announcements == [Announcement(instance_id=vm, at=NOON, ends_at=ends_at)]
    assert states(call) == {vm: "running"}
    cloud.time.advance(30)
    assert states(call) == {}


def test_a_protected_instance_is_announced_later(cloud, create):
    until = NOON + timedelta(hours=1)

    ends_at = cloud.reclaim(create(), notice_seconds=30, not_before=until)

    assert ends_at == until
    (announcement,) = cloud.announcements
    assert announcement.at == until - timedelta(seconds=30)
    assert announcement.ends_at == until


def test_a_reset_restores_the_controls(cloud, call, create):
    create()
    cloud.capacity.sell_out()
    cloud.fail_late(code="late")
    cloud.fail_pools(code="early")
    cloud.deny("*")
    cloud.behaviour.pending_seconds = 1000
    cloud.throttling.set({"write": SimulatedCallRate(bucket=0, refill=0)})
    cloud.time.advance(60)

    cloud.reset_controls()

    assert states(call) == {}
    status, vm, _ = call("POST", body=LARGE)
    assert status == 201
    assert states(call) == {vm["id"]: "running"}
    assert cloud.time() == NOON


def test_the_demo_of_a_cloud_declares_its_node_class_and_unsupported_steps(cloud, create):
    vm, demo = create(), SampleDemo(cloud)
    offering = OfferingKey(instance_type="large", zone="north", capacity_type="on-demand")

    assert demo.environment == cloud.environment
    assert demo.currency == "EUR"
    assert set(demo.lacks) == {DemoFeature.SPOT, DemoFeature.NEWER_IMAGE}
    (instance,) = demo.instances().values()
    assert (instance.offering, instance.price_per_hour) == (offering, 0.4)
    assert list(demo.nodes()) == [f"rest://{vm}"]
    assert demo.list_resources() == [vm]
    demo.sell_out(offering)
    assert cloud.capacity.left(cloud.instance(vm).pool) == 0
    assert demo.newer_image == {}
    assert demo.requirements == ()


def test_launches_are_logged_with_sold_out_offerings(cloud, create, call):
    create()
    with cloud.capacity.sell_out():
        call("POST", body=LARGE)

    pool = InstancePool(capacity_type="on-demand", instance_type="large", zone="north").offering
    bought, refused = cloud.launches.all
    assert (bought.sold_out, bought.bought) == ([], {pool: 1})
    assert (refused.sold_out, refused.bought) == ([pool], {})


def test_deleting_a_missing_resource_is_refused(call):
    status, body, _ = call("DELETE", "/vms/vm-none")

    assert (status, body) == (404, {"code": "not-found", "message": "there is no VM vm-none"})


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("PUT", "/groups/a%2Fb/vms/one", {"group": "a/b", "vm": "one"}),
        ("PUT", "/groups/a/vms", None),
        ("PUT", "/groups/a/vms/one/more", None),
        ("GET", "/groups/a/vms/one", None),
    ],
)
def test_a_route_matches_method_and_whole_path(method, path, expected):
    route = RestRoute(
        action="put", method="PUT", path="/groups/{group}/vms/{vm}", answer=lambda _: (200, {})
    )

    assert route.match(HttpRequest(method=method, path=path, headers={})) == expected
