"""ProvisioningRequests in `karpenter plan`, `explain` and `doctor`."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
import yaml

from karpenter_core.api.provisioning_request import CHECK_CAPACITY
from karpenter_core.cli.doctor.requests import check_requests
from karpenter_core.errors import ApiError
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.operator.clock import SystemClock
from karpenter_core.provider.contract import Severity
from tests.cli.inputs import pool
from tests.controllers.gangs import consumer, request, template


@pytest.fixture
def run(program, types_file, tmp_path):
    """Run a command on a file of these objects."""

    def run_on(*arguments, objects, output="json"):
        file = tmp_path / "objects.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        shown = program(
            *arguments, "--offline", file, "--instance-types-file", types_file, "-o", output
        ).out
        return json.loads(shown) if output == "json" else shown

    return run_on


def provisioned(found, details):
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": f"{kind} it is",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in ("Accepted", "Provisioned")
    ]
    return {**found, "status": {"conditions": conditions, "provisioningClassDetails": details}}


def node(name):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def test_a_waiting_request_is_planned_for_by_itself(run):
    document = run("plan", objects=[pool(), node("old"), template(), request()])
    (found,) = document["provisioningRequests"]
    assert (found["request"], found["state"], found["pods"]) == ("default/job", "Pending", 6)
    assert found["plan"]["problem"] == ""
    assert (
        sum(found["plan"]["existing"].values())
        + sum(each["pods"] for each in found["plan"]["launch"])
        == 6
    )
    assert document["nodeClaims"] == []


def test_a_request_without_room_says_why(run):
    objects = [pool(limits={"cpu": "2"}), template(cpu="3"), request()]
    (found,) = run("plan", objects=objects)["provisioningRequests"]
    assert "6 of 6 pod(s) have no place" in found["plan"]["problem"]
    shown = run("plan", objects=objects, output="table")
    assert "ProvisioningRequest default/job: Pending" in shown


def test_a_capacity_check_is_never_planned_to_launch(run):
    objects = [pool(), template(), request(provisioning_class=CHECK_CAPACITY)]
    (found,) = run("plan", objects=objects)["provisioningRequests"]
    assert "have no place" in found["plan"]["problem"]


def test_a_partial_check_names_the_pod_sets_that_fit(run):
    pod_sets = (("workers", 2), ("bulk", 1))
    options = {"provisioning_class": CHECK_CAPACITY, "partialCapacityCheck": "bookPartial"}
    objects = [pool(), node("old"), template(), template("bulk", cpu="9")]
    asked = request("job", *pod_sets, **options)
    (found,) = run("plan", objects=[*objects, asked])["provisioningRequests"]
    assert "1 of 3 pod(s) have no place" in found["plan"]["problem"]
    assert "existing nodes have the capacity of pod set(s) workers" in found["plan"]["problem"]


def test_a_request_that_will_fail_is_not_planned_and_says_why(run):
    objects = [pool(), template(), request("job", ("workers", 2_000_000_000))]
    (found,) = run("plan", objects=objects)["provisioningRequests"]
    assert found["plan"]["problem"] == "podSets ask for 2000000000 pods, more than 100000"


def test_booked_room_is_shown_and_not_planned_for_other_pods(run):
    booked = provisioned(request("job", ("workers", 4)), {"karpenter.sh/places": '{"old": "0=4"}'})
    pod = consumer("other")
    del pod["metadata"]["annotations"]
    document = run("plan", objects=[pool(), node("old"), template(), booked, pod])
    (found,) = document["provisioningRequests"]
    assert found["booked"] == {"old": 4}
    assert found["plan"] is None
    assert [each["pods"] for each in document["nodeClaims"]] == [["default/other"]]


def test_plans_without_requests_have_no_such_field(run):
    assert "provisioningRequests" not in run("plan", objects=[pool(), template()])


def test_pods_that_consume_a_request_are_explained_by_it(run):
    objects = [pool(), template(), request(), consumer("early"), consumer("lost", job="gone")]
    plan = run("plan", objects=objects)
    assert plan["unschedulable"]["default/early"]["pools"] == {}
    explained = run("explain", "pod", "default/early", objects=objects)
    assert explained["state"] == "held"
    assert "the request is Pending" in explained["message"]
    lost = run("explain", "pod", "default/lost", objects=objects)
    assert "ProvisioningRequest default/gone" in lost["message"]
    assert "does not exist" in lost["message"]


class RequestServer:
    """An API server with ProvisioningRequests, or a status in place of them."""

    def __init__(self, *requests, status=200):
        self.requests, self.status = requests, status

    async def request(self, _request):
        page = {"metadata": {}, "items": self.requests} if self.status == 200 else {}
        return ApiResponse(status=self.status, body=json.dumps(page).encode())


def findings(*requests, are_served=True, status=200):
    apis = ClusterApis(KubeApi(RequestServer(*requests, status=status), clock=SystemClock()))
    found = asyncio.run(check_requests(apis, are_served=are_served))
    return [(each.severity, each.message) for each in found]


def a_request(name, *, attempts="0", **conditions):
    found = request(name)
    found["status"] = {
        "conditions": [
            {"type": kind, "status": status, "message": "limits"}
            for kind, status in conditions.items()
        ],
        "provisioningClassDetails": {"karpenter.sh/attempts": attempts},
    }
    return found


def test_the_missing_kind_is_an_error_only_if_requests_are_to_be_served():
    ((severity, message),) = findings(status=404)
    assert severity is Severity.ERROR
    assert "provisioningrequests.autoscaling.x-k8s.io is not installed" in message
    assert findings(status=404, are_served=False) == []
    assert findings(status=403) == []


def test_a_failing_server_is_not_taken_for_one_without_the_kind():
    with pytest.raises(ApiError):
        findings(status=500)


def test_requests_of_an_unserved_class_are_a_warning():
    waiting = partial(findings, are_served=False)
    assert waiting(a_request("done", Provisioned="True")) == []
    ((severity, message),) = waiting(a_request("new"), a_request("done", Failed="True"))
    assert severity is Severity.WARNING
    assert message.startswith("1 ProvisioningRequest(s) wait")
    assert waiting(request("other", provisioning_class="queued.example.com")) == []


def test_requests_that_are_stuck_are_warnings_and_others_are_fine():
    assert findings(a_request("new"), a_request("once", attempts="1", Provisioned="False")) == [
        (Severity.OK, "2 ProvisioningRequests are served")
    ]
    stuck = findings(
        a_request("often", attempts="3", Provisioned="False"),
        a_request("bare", Accepted="False"),
        a_request("over", Accepted="False", Failed="True"),
    )
    assert stuck == [
        (Severity.WARNING, 'ProvisioningRequest "default/often": limits'),
        (Severity.WARNING, 'ProvisioningRequest "default/bare": limits'),
    ]
