"""ProvisioningRequests on the embedded cluster: gangs that are launched, booked and used."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from karpenter_core.api.conditions import Condition
from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    CHECK_CAPACITY,
    CONSUMED_REQUEST_DEPRECATED,
    GANG_ATTEMPT,
    GANG_REQUEST,
)
from karpenter_core.controllers.provisioning_request.controller import (
    ProvisioningRequestController,
)
from karpenter_core.kube.resources import DEPLOYMENTS, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS, PROVISIONING_REQUESTS
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import synced_state
from tests.controllers.clocks import TwoClocks
from tests.controllers.gangs import (
    FOUR_CORES,
    SERVING,
    Gangs,
    consumer,
    request,
    run_gangs,
    template,
)
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.provisioning_requests import request as lifecycle_request
from tests.support.provisioning_requests import template as lifecycle_template

CHECK = CHECK_CAPACITY
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
"""Consolidation must not clean up what a gang has left."""


def test_a_gang_is_launched_booked_and_used(tmp_path):
    """The nodes stay while they are booked, though nothing runs on them, and no pod buys another."""

    async def story(scene):
        scene.prepare(request())
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"))
        assert scene.condition("Accepted")["status"] == "True"
        assert scene.condition("Provisioned")["reason"] == "CapacityIsProvisioned"
        assert len(scene.instances()) == 2
        await scene.passes(300)
        assert len(scene.instances()) == 2, "booked nodes are not empty nodes"
        marks = [claim["metadata"]["annotations"] for claim in scene.harness.claims()]
        assert {each[GANG_REQUEST] for each in marks} == {"default/job"}
        assert not any(GANG_ATTEMPT in each for each in marks)
        scene.cluster.apply([consumer(f"worker-{n}") for n in range(6)])
        await scene.until(lambda: len(scene.bound()) == 6, seconds=30)
        assert len(scene.launches()) == 2
        await scene.until(lambda: scene.is_true("BookingExpired"))
        assert scene.condition("BookingExpired")["reason"] == "CapacityReservationTimeExpired"
        await scene.passes(60)
        assert len(scene.instances()) == 2, "the pods of the job are on them"

    run_gangs(tmp_path, story)


def test_unused_nodes_go_soon_after_their_booking_has_ended(tmp_path):
    """The end of a booking changes no node, and counts as a change for consolidation nevertheless."""

    async def story(scene):
        scene.prepare(request())
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"))
        await scene.until(lambda: scene.is_true("BookingExpired"))
        await scene.until(lambda: not scene.instances(), seconds=60)

    run_gangs(tmp_path, story)


def test_a_gang_beyond_the_limits_creates_nothing_and_is_tried_again(tmp_path):
    async def story(scene):
        scene.prepare(request(), limits={"cpu": "4"})
        scene.harness.start()
        await scene.until(lambda: scene.condition("Provisioned"))
        assert scene.condition("Provisioned")["status"] == "False"
        assert scene.condition("Provisioned")["reason"] == "CapacityIsNotFound"
        assert "3 of 6 pod(s) have no place" in scene.condition("Provisioned")["message"]
        await scene.passes(50)
        assert scene.status()["provisioningClassDetails"]["karpenter.sh/attempts"] == "1"
        await scene.until(lambda: attempts(scene) == 2, seconds=30)
        assert scene.is_empty()
        assert not scene.harness.events("Launched")
        scene.cluster.patch(NODE_POOLS, "general", {"spec": {"limits": {"cpu": "8"}}})
        await scene.until(lambda: scene.is_true("Provisioned"), seconds=180)
        assert set(scene.launches().values()) == {1}
        assert len(scene.instances()) == 2

    run_gangs(tmp_path, story)


def test_a_stock_out_of_one_instance_takes_the_others_away_again(tmp_path):
    """The gang is launched whole later, and each instance once."""

    async def story(scene):
        scene.break_cloud({"fault": "stock-out", "count": 1})
        scene.prepare(request(), disruption=NEVER)
        scene.harness.start()
        await scene.until(lambda: attempts(scene) >= 1 and "retry-after" in details(scene))
        assert scene.condition("Provisioned")["reason"] == "CapacityIsNotFound"
        await scene.until(scene.is_empty, seconds=55)
        scene.break_cloud()
        await scene.until(lambda: scene.is_true("Provisioned"))
        assert len(scene.instances()) == 2
        assert set(scene.launches().values()) == {1}

    run_gangs(tmp_path, story)


def test_an_instance_that_fails_late_takes_the_others_away_again(tmp_path):
    """The other instance runs by then, and is ended before the next attempt."""

    async def story(scene):
        most = []
        scene.break_cloud({"fault": "late-failure", "delay": "5s", "count": 1})
        scene.prepare(request(), disruption=NEVER)
        scene.cluster.server.registry.store.listen(
            NODE_CLAIMS, lambda _change: most.append(len(scene.harness.claims()))
        )
        scene.harness.start()
        await scene.until(lambda: len(scene.nodes()) == 1)
        await scene.until(lambda: "retry-after" in details(scene))
        assert "NodeClaim general-" in scene.condition("Provisioned")["message"]
        await scene.until(lambda: not scene.nodes(), seconds=55)
        await scene.until(lambda: scene.is_true("Provisioned"))
        assert len(scene.launches()) == 4
        assert set(scene.launches().values()) == {1}
        assert max(most) == 2, "no node is bought for the next attempt while one is left"

    run_gangs(tmp_path, story)


def test_a_gang_whose_nodes_are_never_ready_fails_at_its_deadline_and_leaves_nothing(tmp_path):
    async def story(scene):
        scene.break_cloud({"fault": "unready-node", "count": 1})
        scene.prepare(request("job", ValidUntilSeconds="200"), disruption=NEVER)
        scene.harness.start()
        await scene.until(lambda: len(scene.nodes()) == 2)
        await scene.passes(150)
        assert len(scene.nodes()) == 2, "the ready node waits for the other one"
        await scene.until(lambda: scene.is_true("Failed"), seconds=60)
        assert scene.condition("Failed")["reason"] == "Expired"
        assert not scene.is_true("Provisioned")
        await scene.until(scene.is_empty)
        await scene.passes(700)
        assert len(scene.launches()) == 2

    run_gangs(tmp_path, story)


def test_a_request_that_is_deleted_while_it_launches_leaves_nothing(tmp_path):
    async def story(scene):
        scene.prepare(request(), disruption=NEVER)
        scene.harness.start()
        await scene.until(lambda: len(scene.harness.claims()) == 2)
        scene.cluster.delete(PROVISIONING_REQUESTS, "job", namespace="default")
        await scene.until(scene.is_empty)

    run_gangs(tmp_path, story)


def test_nodes_of_a_deleted_request_that_was_provisioned_are_nodes_like_others(tmp_path):
    """The pool keeps empty nodes, so nothing may delete them."""

    async def story(scene):
        scene.prepare(request(), disruption=NEVER)
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"))
        await scene.passes(5)
        scene.cluster.delete(PROVISIONING_REQUESTS, "job", namespace="default")
        await scene.passes(300)
        assert len(scene.instances()) == 2

    run_gangs(tmp_path, story)


def test_a_booking_ends_and_its_unused_nodes_go(tmp_path):
    async def story(scene):
        scene.prepare(request())
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"))
        scene.cluster.apply([consumer(f"worker-{n}") for n in range(2)])
        await scene.until(lambda: scene.is_true("BookingExpired"), seconds=700)
        for pod in scene.bound():
            scene.cluster.delete(PODS, pod["metadata"]["name"], namespace="default")
        await scene.until(scene.is_empty)

    run_gangs(tmp_path, story)


def test_booked_nodes_that_vanish_revoke_the_capacity(tmp_path):
    """Kueue then deactivates the workload, rather than have its pods wait for ever."""

    async def story(scene):
        scene.prepare(request())
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"))
        scene.cluster.delete(NODE_CLAIMS, scene.harness.claims()[0]["metadata"]["name"])
        await scene.until(lambda: scene.is_true("CapacityRevoked"))
        assert "3 pod(s)" in scene.condition("CapacityRevoked")["message"]
        await scene.until(scene.is_empty)
        assert len(scene.launches()) == 2

    run_gangs(tmp_path, story)


def test_pods_that_consume_a_request_buy_no_nodes(tmp_path):
    async def story(scene):
        scene.prepare(consumer("early"), consumer("old", annotation=CONSUMED_REQUEST_DEPRECATED))
        scene.harness.start()
        await scene.passes(60)
        assert scene.is_empty()
        scene.cluster.apply([request("job", ("workers", 1))])
        await scene.until(lambda: len(scene.bound()) == 2)

    run_gangs(tmp_path, story)


def test_without_the_option_requests_are_not_read_and_annotations_mean_nothing(tmp_path):
    async def story(harness):
        scene = Gangs(harness, tmp_path)
        scene.prepare(request(), consumer("early"))
        running = harness.start("--disable-leader-election")
        await scene.until(lambda: len(scene.bound()) == 1)
        await scene.passes(60)
        assert not scene.status().get("conditions")
        assert len(scene.instances()) == 1
        kinds = {kind.kind for kind in running.process.informers.ages}
        assert not kinds & {"ProvisioningRequest", "PodTemplate"}

    run_controller(tmp_path, story)


def test_a_cluster_without_the_kind_is_served_and_requests_are_once_it_is_there(tmp_path):
    async def story(harness):
        scene = Gangs(harness, tmp_path)
        scene.cluster.apply([NODE_CLASS, node_pool(template=FOUR_CORES), deployment("web", 1)])
        harness.start(*SERVING)
        await scene.until(lambda: len(scene.bound()) == 1)
        scene.prepare(request())
        await scene.until(lambda: scene.is_true("Provisioned"))

    run_controller(tmp_path, story)


def test_templates_may_follow_their_request_and_late_ones_are_named(tmp_path):
    """Kueue creates the request first."""

    async def story(scene):
        scene.prepare(request("job", ("late", 1)))
        scene.harness.start()
        await scene.passes(20)
        assert not scene.status().get("conditions")
        await scene.until(lambda: scene.condition("Accepted"), seconds=15)
        assert scene.condition("Accepted")["reason"] == "PodTemplateNotFound"
        assert "late" in scene.condition("Accepted")["message"]
        scene.cluster.apply([template("late")])
        await scene.until(lambda: scene.is_true("Provisioned"))

    run_gangs(tmp_path, story)


def test_a_capacity_check_finds_room_on_nodes_and_launches_nothing(tmp_path):
    async def story(scene):
        scene.prepare(
            deployment("web", 1), request("job", ("workers", 3), provisioning_class=CHECK)
        )
        scene.harness.start()
        await scene.until(lambda: scene.condition("Provisioned"))
        assert scene.condition("Provisioned")["reason"] == "CapacityIsNotFound"
        await scene.until(lambda: len(scene.bound()) == 1)
        scene.cluster.apply([request("small", ("workers", 2), provisioning_class=CHECK)])
        await scene.until(lambda: scene.is_true("Provisioned", "small"), seconds=10)
        assert scene.condition("Provisioned", "small")["reason"] == "CapacityIsFound"
        scene.cluster.apply([request("second", ("workers", 1), provisioning_class=CHECK)])
        await scene.until(lambda: scene.condition("Provisioned", "second"), seconds=10)
        assert not scene.is_true("Provisioned", "second"), "the room is booked"
        await scene.until(lambda: scene.is_true("BookingExpired", "small"), seconds=700)
        await scene.until(lambda: scene.is_true("Provisioned", "second"), seconds=700)
        assert len(scene.instances()) == 1

    run_gangs(tmp_path, story)


def test_a_capacity_check_without_retry_fails_at_once(tmp_path):
    async def story(scene):
        scene.prepare(request(provisioning_class=CHECK, noRetry="true"))
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Failed"), seconds=10)
        assert scene.condition("Failed")["reason"] == "CapacityIsNotFound"
        assert scene.harness.events("CapacityIsNotFound")
        assert scene.is_empty()

    run_gangs(tmp_path, story)


@pytest.mark.parametrize("mode", ["bookPartial", "checkOnly"])
def test_a_partial_check_finds_the_pod_sets_that_fit(tmp_path, mode):
    """A node has room for two of the pods: the first pod set and the last fit together."""
    pod_sets = (("workers", 1), ("bulk", 1), ("more", 1))

    async def story(scene):
        templates = (template("bulk", cpu="3"), template("more"))
        scene.prepare(deployment("web", 1), *templates)
        scene.harness.start()
        await scene.until(lambda: len(scene.bound()) == 1)
        asked = request("job", *pod_sets, provisioning_class=CHECK, partialCapacityCheck=mode)
        scene.cluster.apply([asked])
        await scene.until(lambda: scene.condition("Provisioned"), seconds=10)

        found = scene.condition("Provisioned")
        assert found["reason"] == "PartialCapacityIsFound"
        assert found["status"] == ("True" if mode == "bookPartial" else "False")
        assert "workers, more, and not that of bulk" in found["message"]
        details = scene.status()["provisioningClassDetails"]
        assert json.loads(details["schedulablePodSets"]) == ["workers", "more"]
        assert scene.harness.events("PartialCapacityIsFound")
        scene.cluster.apply([request("second", ("workers", 1), provisioning_class=CHECK)])
        await scene.until(lambda: scene.condition("Provisioned", "second"), seconds=10)
        assert scene.is_true("Provisioned", "second") == (mode == "checkOnly"), "room is booked"
        if mode == "bookPartial":
            await scene.passes(120)
            assert not scene.is_true("CapacityRevoked"), "what was not found is not lost"
            scene.cluster.apply([consumer("worker-0")])
            await scene.until(lambda: len(scene.bound()) == 2, seconds=30)
            await scene.until(lambda: scene.is_true("BookingExpired"), seconds=700)
        assert len(scene.instances()) == 1

    run_gangs(tmp_path, story)


def test_a_partial_check_names_all_pod_sets_when_they_fit_and_none_when_none_does(tmp_path):
    async def story(scene):
        scene.prepare(deployment("web", 1), template("bulk", cpu="3"))
        scene.harness.start()
        await scene.until(lambda: len(scene.bound()) == 1)
        options = {"provisioning_class": CHECK, "partialCapacityCheck": "checkOnly"}
        none = request("none", ("bulk", 1), ("bulk", 2), noRetry="true", **options)
        scene.cluster.apply([request("all", ("workers", 2), **options), none])
        await scene.until(lambda: scene.is_true("Provisioned", "all"), seconds=10)
        assert scene.condition("Provisioned", "all")["reason"] == "CapacityIsFound"
        details = scene.status("all")["provisioningClassDetails"]
        assert json.loads(details["schedulablePodSets"]) == ["workers"]
        await scene.until(lambda: scene.is_true("Failed", "none"), seconds=10)
        assert scene.condition("Failed", "none")["reason"] == "CapacityIsNotFound"
        assert "schedulablePodSets" not in scene.status("none").get("provisioningClassDetails", {})

    run_gangs(tmp_path, story)


def test_a_partial_check_is_repeated_until_all_pod_sets_fit(tmp_path):
    async def story(scene):
        scene.prepare(deployment("web", 1), template("bulk", cpu="3"), disruption=NEVER)
        scene.harness.start()
        await scene.until(lambda: len(scene.bound()) == 1)
        sets = (("workers", 1), ("bulk", 1))
        asked = request("job", *sets, provisioning_class=CHECK, partialCapacityCheck="checkOnly")
        scene.cluster.apply([asked])
        await scene.until(lambda: scene.condition("Provisioned"), seconds=10)
        scene.cluster.apply([deployment("more", 1, cpu="3")])
        await scene.until(lambda: len(scene.bound()) == 2, seconds=60)
        scene.cluster.scale(DEPLOYMENTS, "more", 0)
        await scene.until(lambda: scene.is_true("Provisioned"), seconds=120)
        assert scene.condition("Provisioned")["reason"] == "CapacityIsFound"

    run_gangs(tmp_path, story)


def test_a_request_for_far_too_many_pods_fails_and_costs_nothing(tmp_path):
    async def story(scene):
        scene.prepare(request("huge", ("workers", 2_000_000_000)), request("job", ("workers", 3)))
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Failed", "huge"), seconds=10)
        assert "2000000000 pods, more than 100000" in scene.condition("Failed", "huge")["message"]
        await scene.until(lambda: scene.is_true("Provisioned"))

    run_gangs(tmp_path, story)


def test_a_gang_uses_free_capacity_and_launches_only_missing_nodes(tmp_path):
    async def story(scene):
        scene.prepare(deployment("web", 1))
        scene.harness.start()
        await scene.until(lambda: len(scene.bound()) == 1)
        scene.cluster.apply([request("job", ("workers", 5))])
        await scene.until(lambda: scene.is_true("Provisioned"))
        assert len(scene.instances()) == 2
        scene.cluster.apply([consumer(f"worker-{n}") for n in range(5)])
        await scene.until(lambda: len(scene.bound()) == 6, seconds=30)
        assert len(scene.launches()) == 2

    run_gangs(tmp_path, story)


def test_a_dozen_requests_are_all_served(tmp_path):
    async def story(scene):
        scene.prepare(*(request(f"job-{n}", ("workers", 1)) for n in range(12)))
        running = scene.harness.start()
        await scene.until(
            lambda: all(scene.is_true("Provisioned", f"job-{n}") for n in range(12)), seconds=120
        )
        assert len(scene.instances()) == 4, "three requests share each node"
        served = 'karpenter_provisioning_requests{provisioning_class="%s",state="Provisioned"}'
        await scene.passes(1)
        assert running.metric(served % ATOMIC_SCALE_UP) == 12
        for state in ("Pending", "Accepted", "Launching"):
            waiting = served.replace("Provisioned", state)
            assert running.metric(waiting % ATOMIC_SCALE_UP) == 0
        changes = "karpenter_provisioning_request_changes_total"
        told = [
            running.metric(f'{changes}{{provisioning_class="{ATOMIC_SCALE_UP}",reason="{why}"}}')
            for why in ("CapacityIsProvisioned", "CapacityIsFound")
        ]
        assert told == [4, 8], "those with nodes of their own, and those that share them"

    run_gangs(tmp_path, story)


def test_a_shared_node_is_lost_with_the_request_that_launched_it(tmp_path):
    """Nothing is promised on it before that request is provisioned; the other one is served anew."""

    async def story(scene):
        scene.break_cloud({"fault": "unready-node", "count": 1})
        jobs = request("job", ("workers", 2)), request("second", ("workers", 1))
        scene.prepare(*jobs, disruption=NEVER)
        scene.harness.start()
        await scene.until(lambda: len(scene.nodes()) == 1)
        await scene.passes(60)
        assert len(scene.harness.claims()) == 1
        assert scene.condition("Provisioned", "second")["reason"] == "CapacityIsLaunching"
        assert "1 that start already" in scene.condition("Provisioned", "second")["message"]
        scene.cluster.delete(PROVISIONING_REQUESTS, "job", namespace="default")
        await scene.until(
            lambda: scene.condition("Provisioned", "second")["reason"] == "CapacityIsNotFound"
        )
        await scene.until(lambda: scene.is_true("Provisioned", "second"), seconds=180)
        assert not scene.is_true("CapacityRevoked", "second")
        assert len(scene.launches()) == 2
        assert len(scene.instances()) == 1

    run_gangs(tmp_path, story)


def test_a_request_waits_for_nodes_that_start_for_pods(tmp_path):
    """It is not provisioned on a node that may never be ready."""

    async def story(scene):
        scene.break_cloud({"fault": "slow-node", "delay": "60s", "count": 1})
        scene.prepare(deployment("web", 1), disruption=NEVER)
        scene.harness.start()
        await scene.until(lambda: len(scene.harness.claims()) == 1)
        scene.cluster.apply([request("job", ("workers", 2))])
        await scene.until(lambda: scene.condition("Provisioned"))
        assert scene.condition("Provisioned")["reason"] == "CapacityIsLaunching"
        await scene.passes(30)
        assert not scene.is_true("Provisioned")
        await scene.until(lambda: scene.is_true("Provisioned"), seconds=60)
        assert attempts(scene) == 1
        assert scene.condition("Provisioned")["reason"] == "CapacityIsFound"
        assert len(scene.launches()) == 1

    run_gangs(tmp_path, story)


def test_a_request_with_a_bad_parameter_fails_and_one_of_a_foreign_class_is_left_alone(tmp_path):
    async def story(scene):
        scene.prepare(
            request("bad", ValidUntilSeconds="soon"),
            request("foreign", provisioning_class="queued.example.com"),
        )
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Failed", "bad"))
        assert 'ValidUntilSeconds is "soon"' in scene.condition("Failed", "bad")["message"]
        await scene.passes(60)
        assert not scene.status("foreign").get("conditions")
        assert scene.is_empty()

    run_gangs(tmp_path, story)


def details(scene):
    found = scene.status().get("provisioningClassDetails", {})
    return {key.partition("/")[2]: value for key, value in found.items()}


def attempts(scene):
    return int(details(scene).get("attempts", "0"))


def test_a_status_that_another_writer_was_faster_to_change_is_written_soon_after(tmp_path):
    """The pass may be over before the watch shows the change."""

    async def story(scene):
        status = "provisioningrequests/job/status"
        fault = RequestFault(matches=matching("PATCH", status), status=409, times=1)
        scene.cluster.frontend.faults.add(fault)
        scene.prepare(request())
        running = scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"), seconds=120)
        assert scene.cluster.frontend.faults.hits == 1
        failed = 'karpenter_reconcile_errors_total{controller="provisioningrequest"}'
        assert running.metric(failed) == 0

    run_gangs(tmp_path, story)


async def test_a_request_without_its_template_is_not_planned():
    """The template was deleted after the step: the next step says so."""
    asked = lifecycle_request()
    planned, written = [], []

    async def plan(*_arguments):
        planned.append(1)
        return None, SimpleNamespace(claims=()), SimpleNamespace(problem="full")

    async def write(*arguments):
        written.append(arguments)

    async def some(*_arguments):
        return None

    def provide(*objects):
        snapshot = synced_state(asked, *objects).snapshot()
        controller = SimpleNamespace(
            _planning_turn=asyncio.Lock(),
            _cluster_state=SimpleNamespace(tick=lambda: None, snapshot=lambda: snapshot),
            _creator=SimpleNamespace(refusal=lambda _claims: ""),
            _runtime=SimpleNamespace(clock=TwoClocks()),
            _plan=plan,
            _with_some=some,
            _write=write,
        )
        return ProvisioningRequestController._provide(controller, asked)

    await provide()
    assert (len(planned), len(written)) == (0, 0)
    await provide(lifecycle_template())
    assert (len(planned), len(written)) == (1, 1)


@pytest.mark.parametrize(
    ("states", "unevaluated", "expected"),
    [
        (["True", "False"], (), True),
        (["True", "Unknown"], (), False),
        (["Unknown", "Unknown"], (), False),
        (["True"], ("general",), False),
        ([], (), True),
    ],
)
def test_pools_are_judged_when_it_is_known_of_each_whether_it_is_ready(
    states, unevaluated, expected
):
    """One that is not would be missing in a plan."""
    pools = {
        str(number): SimpleNamespace(
            status=SimpleNamespace(conditions=(condition("Ready", status),))
        )
        for number, status in enumerate(states)
    }
    controller = SimpleNamespace(_unevaluated_pools=lambda: unevaluated)
    snapshot = SimpleNamespace(node_pools=pools)
    is_judged = ProvisioningRequestController._are_pools_judged
    assert is_judged(controller, snapshot) is expected


def condition(kind, status):
    return Condition(type=kind, status=status, reason=kind, message="", last_transition_time=EPOCH)
