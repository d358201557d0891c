"""Moved pods are planned with the requests that VerticalPodAutoscalers will give them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.container_requests import total_requests
from karpenter_core.disruption.fingerprint import consolidation_fingerprint
from karpenter_core.errors import BadInputError
from karpenter_core.kube.objects import view_from_manifest
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.kube.wire.kind_groups import EVERY_KIND_GROUP
from karpenter_core.scheduling.problem import DaemonPod
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.events import CataloguePublished, DeletionMarked
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.state.request_predictions import RequestPredictions, predicted_requests
from karpenter_core.testing.builders import EPOCH, node_pool, standard_catalogue
from karpenter_core.testing.state_builders import node_and_claim, ready_node_pool, synced_state

GI = 2**30
CODECS = Codecs(groups=EVERY_KIND_GROUP)


def autoscaler(name="web", *, target=("apps/v1", "Deployment", "web"), created=None, **fields):
    """A VerticalPodAutoscaler; `targets` are its recommendation, by container."""
    api_version, kind, target_name = target
    targets = fields.pop("targets", {"web": {"cpu": "3"}})
    manifest = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {
            "name": name,
            "namespace": "default",
            **({"creationTimestamp": created} if created else {}),
        },
        "spec": {
            "targetRef": {"apiVersion": api_version, "kind": kind, "name": target_name},
            **fields,
        },
        "status": {
            "recommendation": {
                "containerRecommendations": [
                    {"containerName": container, "target": target}
                    for container, target in targets.items()
                ]
            }
        },
    }
    return view_from_manifest(manifest, CODECS)


def pod(
    name="web-5d-a",
    *,
    owner=("apps/v1", "ReplicaSet", "web-5d"),
    node="",
    created=None,
    observed=False,
    **requests,
):
    """A pod of the container `web` and an untouched one, by default of the Deployment `web`.

    It was `created` some hours ago; an `observed` one has passed the autoscaler's admission.
    """
    api_version, kind, owner_name = owner
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": "web", "pod-template-hash": "5d"},
            **({"annotations": {"vpaObservedContainers": "web, proxy"}} if observed else {}),
            **({} if created is None else {"creationTimestamp": hours_ago(created)}),
            "ownerReferences": [
                {
                    "apiVersion": api_version,
                    "kind": kind,
                    "name": owner_name,
                    "uid": "u",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "web",
                    "resources": {"requests": requests or {"cpu": "1", "memory": "1Gi"}},
                },
                {"name": "proxy", "resources": {"requests": {"cpu": "500m"}}},
            ],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running"} if node else {},
    }
    return view_from_manifest(manifest, CODECS)


def hours_ago(hours):
    return f"{EPOCH - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"


def predicted(item, *autoscalers):
    shape = RequestPredictions(synced_state(*autoscalers).snapshot(), EPOCH).apply(item).shape
    return {name: amount for name, amount in shape.requests.items() if name != "pods"}


BEFORE = {"cpu": 1500, "memory": GI}


def test_a_pod_is_planned_with_the_recommended_requests():
    """Of the containers that have a recommendation; the others keep theirs."""
    raised = autoscaler(targets={"web": {"cpu": "3", "memory": "2Gi"}})
    assert predicted(pod(), raised) == {"cpu": 3500, "memory": 2 * GI}
    lowered = autoscaler(targets={"web": {"cpu": "100m"}, "gone": {"cpu": "9"}})
    assert predicted(pod(created=30), lowered) == {"cpu": 600, "memory": GI}
    assert predicted(pod(), autoscaler(targets={})) == BEFORE


@pytest.mark.parametrize(
    ("item", "cpu"),
    [
        ({"created": 12, "observed": True}, 600),
        ({"created": 11, "observed": True}, 1500),
        ({"created": 13}, 1500),
        ({"created": 24}, 1500),
        ({"created": 30}, 600),
        ({}, 1500),
    ],
    ids=["old", "young", "not-admitted", "with-the-autoscaler", "before-the-autoscaler", "no-time"],
)
def test_a_pod_is_expected_to_shrink_only_if_new_pods_may_be_smaller(item, cpu):
    """More is always planned for: the autoscaler is a day old, and lowers the CPU."""
    target = {"web": {"cpu": "100m", "memory": "2Gi"}}
    lowered = autoscaler(targets=target, created=hours_ago(24))
    assert predicted(pod(**item), lowered) == {"cpu": cpu, "memory": 2 * GI}


def test_young_and_old_pods_of_one_shape_may_have_different_requests():
    lowered = autoscaler(targets={"web": {"cpu": "100m"}}, created=hours_ago(24))
    predictions = RequestPredictions(synced_state(lowered).snapshot(), EPOCH)
    ages = (1, 13, 2, 14)
    pods = [pod(f"web-5d-{age}", created=age, observed=True) for age in ages]
    shapes = [predictions.apply(each).shape for each in pods]
    assert [shape.requests["cpu"] for shape in shapes] == [1500, 600, 1500, 600]
    assert len({id(shape) for shape in shapes}) == 2


@pytest.mark.parametrize("mode", ["Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"])
def test_every_mode_but_off_sets_requests_of_new_pods(mode):
    assert predicted(pod(), autoscaler(updatePolicy={"updateMode": mode})) == {
        "cpu": 3500,
        "memory": GI,
    }
    assert predicted(pod(), autoscaler(updatePolicy={"updateMode": "Off"})) == BEFORE


@pytest.mark.parametrize(
    ("policies", "cpu"),
    [
        ([{"containerName": "web", "mode": "Off"}], None),
        ([{"containerName": "*", "mode": "Off"}], None),
        ([{"containerName": "*", "mode": "Off"}, {"containerName": "web"}], 3000),
        ([{"containerName": "web", "controlledResources": ["memory"]}], None),
        ([{"containerName": "web", "controlledResources": ["cpu"]}], 3000),
        ([{"containerName": "web", "maxAllowed": {"cpu": "2"}}], 2000),
        ([{"containerName": "web", "minAllowed": {"cpu": "4"}}], 4000),
        ([{"containerName": "web", "minAllowed": {"cpu": "1"}, "maxAllowed": {"cpu": "4"}}], 3000),
        ([{"containerName": "proxy", "maxAllowed": {"cpu": "2"}}], 3000),
    ],
    ids=str,
)
def test_the_policy_of_a_container_bounds_its_requests(policies, cpu):
    view = autoscaler(resourcePolicy={"containerPolicies": policies})
    assert predicted_requests(view).get("web", {}).get("cpu") == cpu


def test_a_boost_is_for_containers_with_a_recommendation_of_cpu_alone():
    """It multiplies that; one without anything that is controlled keeps what it asks for."""
    view = autoscaler(
        startupBoost={"cpu": {"type": "Factor", "factor": 2}},
        targets={"web": {"memory": "1Gi"}, "log": {"cpu": "1"}, "gpu": {"nvidia.com/gpu": "1"}},
        resourcePolicy={
            "containerPolicies": [{"containerName": "log", "controlledResources": ["memory"]}]
        },
    )
    assert predicted_requests(view) == {"web": {"memory": GI}}


@pytest.mark.parametrize(
    ("boost", "cpu"),
    [
        ({"cpu": {"type": "Factor", "factor": 2}}, 6000),
        ({"cpu": {"type": "Factor", "factor": 1}}, 3000),
        ({"cpu": {"type": "Quantity", "quantity": "500m"}}, 3500),
        ({"cpu": {}}, 3000),
        ({}, 3000),
    ],
    ids=str,
)
def test_a_new_pod_has_its_startup_boost(boost, cpu):
    """After the bounds; that of the container's policy replaces the general one."""
    assert predicted_requests(autoscaler(startupBoost=boost))["web"]["cpu"] == cpu
    policy = {"containerName": "web", "maxAllowed": {"cpu": "2"}, "startupBoost": boost}
    view = autoscaler(
        resourcePolicy={"containerPolicies": [policy]},
        startupBoost={"cpu": {"type": "Factor", "factor": 9}},
    )
    assert predicted_requests(view)["web"]["cpu"] == {6000: 4000, 3500: 2500, 3000: 2000}[cpu]


@pytest.mark.parametrize(
    ("owner", "target"),
    [
        (("apps/v1", "ReplicaSet", "web-5d"), ("apps/v1", "Deployment", "web")),
        (("apps/v1", "ReplicaSet", "web-5d"), ("apps/v1", "ReplicaSet", "web-5d")),
        (("apps/v1", "StatefulSet", "db"), ("apps/v1", "StatefulSet", "db")),
        (("batch/v1", "Job", "night-28412345"), ("batch/v1", "CronJob", "night")),
        (("batch/v1", "Job", "night-28412345"), ("batch/v1", "Job", "night-28412345")),
        (("v1", "ReplicationController", "old"), ("v1", "ReplicationController", "old")),
        (("example.com/v1", "Game", "chess"), ("example.com/v1", "Game", "chess")),
    ],
    ids=str,
)
def test_an_autoscaler_counts_for_the_pods_of_its_target(owner, target):
    assert predicted(pod(owner=owner), autoscaler(target=target))["cpu"] == 3500


@pytest.mark.parametrize(
    "target",
    [
        ("apps/v1", "Deployment", "other"),
        ("example.com/v1", "Deployment", "web"),
        ("apps/v1", "StatefulSet", "web"),
        ("", "", ""),
    ],
)
def test_an_autoscaler_of_another_target_changes_nothing(target):
    assert predicted(pod(), autoscaler(target=target)) == BEFORE


def test_a_pod_that_nothing_controls_keeps_its_requests():
    """It has an owner, which made it and does not look after it."""
    bare = pod()
    shape = msgspec.structs.replace(bare.shape, owner_controls=False)
    scaler = autoscaler(target=("apps/v1", "ReplicaSet", "web-5d"))
    assert predicted(bare, scaler)["cpu"] == 3500
    assert predicted(msgspec.structs.replace(bare, shape=shape), scaler) == BEFORE


@pytest.mark.parametrize(
    ("owner", "target"),
    [
        (("batch/v1", "Job", "night"), ("batch/v1", "CronJob", "night")),
        (("example.com/v1", "Game", "night-28412345"), ("batch/v1", "CronJob", "night")),
    ],
    ids=["without a time", "of another kind"],
)
def test_only_a_job_with_the_time_of_a_run_is_of_a_cron_job(owner, target):
    assert predicted(pod(owner=owner), autoscaler(target=target)) == BEFORE


def test_an_autoscaler_without_a_recommendation_hides_no_other():
    silent = autoscaler("a", created="2026-01-01T00:00:00Z", targets={})
    younger = autoscaler("b", created="2026-01-02T00:00:00Z")
    assert predicted(pod(), silent, younger)["cpu"] == 3500


def test_an_autoscaler_without_a_time_is_the_youngest():
    untimed = autoscaler("a", targets={"web": {"cpu": "2"}})
    timed = autoscaler("z", created="2026-01-01T00:00:00Z")
    assert predicted(pod(), untimed, timed)["cpu"] == 3500


def test_a_pod_without_its_parts_keeps_its_requests():
    """It was read before predictions were switched on."""
    read = pod()
    shape = msgspec.structs.replace(read.shape, request_parts=None)
    assert predicted(msgspec.structs.replace(read, shape=shape), autoscaler()) == BEFORE


def test_the_change_of_a_request_counts_from_nothing():
    asks = autoscaler(targets={"web": {"memory": "1Gi"}})
    snapshot = synced_state(asks).snapshot()
    assert RequestPredictions(snapshot, EPOCH).change(pod(cpu="1")) == {"memory": GI}
    assert RequestPredictions(snapshot, EPOCH).change(pod(cpu="1", memory="1Gi")) == {}


def test_without_autoscalers_daemons_are_as_they_are():
    daemons = [DaemonPod(name="default/agent", shape=daemon_set().template)]
    predictions = RequestPredictions(cluster(daemon_set()).snapshot(), EPOCH)
    assert predictions.apply_to_daemons(daemons) == tuple(daemons)


def test_an_autoscaler_has_the_version_of_its_object():
    """An older one that a late watch shows must not take the place of a newer one."""
    manifest = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default", "resourceVersion": "17"},
        "spec": {},
    }
    assert view_from_manifest(manifest, CODECS).resource_version == 17


def test_of_two_autoscalers_with_one_target_the_older_counts():
    old = autoscaler("z", created="2026-01-01T00:00:00Z", targets={"web": {"cpu": "2"}})
    young = autoscaler("a", created="2026-02-01T00:00:00Z", targets={"web": {"cpu": "4"}})
    assert predicted(pod(), young, old)["cpu"] == 2500
    same = autoscaler("b", created="2026-02-01T00:00:00Z", targets={"web": {"cpu": "5"}})
    assert predicted(pod(), same, young)["cpu"] == 4500


def test_pods_of_one_shape_stay_one_class():
    predictions = RequestPredictions(synced_state(autoscaler()).snapshot(), EPOCH)
    pods = (
        pod("a"),
        pod("b"),
    )  # both exist, as in a snapshot: a shape is interned while it is in use
    first, second = map(predictions.apply, pods)
    assert first.shape is second.shape
    assert (first.uid, second.uid) == (pod("a").uid, pod("b").uid)
    assert not RequestPredictions(synced_state().snapshot(), EPOCH)


def test_an_autoscaler_that_cannot_be_read_is_refused():
    with pytest.raises(BadInputError, match="VerticalPodAutoscaler"):
        autoscaler(targets={"web": {"cpu": "plenty"}})


def cluster(*objects):
    """A cluster of one pool and one node."""
    pool = ready_node_pool(node_pool())
    built = synced_state(pool, *node_and_claim("web"), *objects, now=EPOCH)
    built.apply_event(CataloguePublished(pool.name, standard_catalogue()))
    return built


def test_a_node_keeps_its_room_and_only_the_move_of_its_pod_needs_more():
    item = pod(node="web")
    plain, _ = build_disruption_problem(cluster(item).snapshot(), now=EPOCH, problem_settings=None)
    problem, movable = build_disruption_problem(
        cluster(item, autoscaler()).snapshot(), now=EPOCH, problem_settings=None
    )

    (before,), (after,) = plain.nodes, problem.nodes
    assert after.available == before.available
    assert movable == {after.name: frozenset({item.uid})}
    assert before.pods[0].shape.requests["cpu"] == 1500
    assert after.pods[0].shape.requests["cpu"] == 3500


def test_a_pod_on_a_leaving_node_is_planned_for_as_it_will_be():
    built = cluster(pod(node="web"), autoscaler())
    built.apply_event(DeletionMarked(names=("web",), cause="Drifted"))
    problem = build_provisioning_input(built.snapshot(), now=EPOCH).problem
    assert [each.shape.requests["cpu"] for each in problem.pods] == [3500]


def test_a_changed_vpa_recommendation_changes_the_consolidation_fingerprint():
    first = consolidation_fingerprint(cluster(pod(node="web"), autoscaler()).snapshot())
    again = msgspec.structs.replace(autoscaler(), resource_version=99)
    assert consolidation_fingerprint(cluster(pod(node="web"), again).snapshot()) == first
    other = autoscaler(targets={"web": {"cpu": "4"}})
    assert consolidation_fingerprint(cluster(pod(node="web"), other).snapshot()) != first


def daemon_set():
    return view_from_manifest(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "default"},
            "spec": {
                "template": {
                    "metadata": {},
                    "spec": {
                        "containers": [{"name": "web", "resources": {"requests": {"cpu": "100m"}}}]
                    },
                }
            },
        },
        CODECS,
    )


def test_daemons_of_new_nodes_have_the_recommended_requests_and_present_ones_theirs():
    scaler = autoscaler(target=("apps/v1", "DaemonSet", "agent"), targets={"web": {"cpu": "1"}})
    plain = build_provisioning_input(cluster(daemon_set()).snapshot(), now=EPOCH).problem
    problem = build_provisioning_input(cluster(daemon_set(), scaler).snapshot(), now=EPOCH).problem

    assert [daemon.shape.requests["cpu"] for daemon in plain.daemons] == [100]
    assert [daemon.shape.requests["cpu"] for daemon in problem.daemons] == [1000]
    assert problem.nodes[0].available == plain.nodes[0].available


@pytest.mark.parametrize(("age", "cpu"), [(None, 100), (1, 100), (13, 50)])
def test_daemons_of_new_nodes_are_smaller_only_if_the_newest_pod_does_not_show_otherwise(age, cpu):
    target = ("apps/v1", "DaemonSet", "agent")
    lowered = autoscaler(target=target, targets={"web": {"cpu": "50m"}}, created=hours_ago(24))
    owner = ("apps/v1", "DaemonSet", "agent")
    pods = [] if age is None else [pod("agent-a", owner=owner, created=age, observed=True)]
    built = cluster(daemon_set(), lowered)
    daemons = [DaemonPod(name="default/agent", shape=daemon_set().template)]
    newest = {daemon_set().uid: each for each in pods}
    snapshot = replace(built.snapshot(), daemon_pods=newest)
    (daemon,) = RequestPredictions(snapshot, EPOCH).apply_to_daemons(daemons)
    assert daemon.shape.requests["cpu"] == cpu


QUANTITIES = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(["100m", "2", "7"]), "memory": st.just("1Gi")}
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": QUANTITIES, "limits": QUANTITIES})


@given(
    main=st.lists(RESOURCES, min_size=1, max_size=3),
    init=st.lists(st.tuples(RESOURCES, st.booleans()), max_size=4),
    overhead=QUANTITIES,
    pod_level=st.none() | RESOURCES,
)
def test_the_parts_of_a_pod_sum_up_to_its_requests(main, init, overhead, pod_level):
    spec = {
        "containers": [{"name": f"c{n}", "resources": each} for n, each in enumerate(main)],
        "initContainers": [
            {"name": f"i{n}", "resources": each}
            | ({"restartPolicy": "Always"} if is_sidecar else {})
            for n, (each, is_sidecar) in enumerate(init)
        ],
        "overhead": overhead,
        **({"resources": pod_level} if pod_level is not None else {}),
    }
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
    shape = view_from_manifest(manifest, CODECS).shape
    assert total_requests(shape.request_parts) == shape.requests


def test_parts_are_kept_only_where_requests_are_predicted():
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web"}]},
    }
    assert view_from_manifest(manifest).shape.request_parts is None
