"""The requests of a pod are computed from its containers (cases 39-47, 55)."""

from __future__ import annotations

import pytest

from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.errors import BadInputError
from karpenter_core.kube.objects import view_from_manifest

GI = 2**30


def container(cpu="", memory="", *, name="main", limits=None, restart=None):
    requests = {k: v for k, v in {"cpu": cpu, "memory": memory}.items() if v}
    made = {"name": name, "resources": {"requests": requests, "limits": limits or {}}}
    return made | ({"restartPolicy": restart} if restart else {})


def sidecar(cpu="", memory="", name="sidecar"):
    return container(cpu, memory, name=name, restart="Always")


def pod(*containers, init=(), overhead=None, resources=None, status=None):
    spec = {"containers": list(containers), "initContainers": list(init)}
    if overhead:
        spec["overhead"] = overhead
    if resources:
        spec["resources"] = resources
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
    return view_from_manifest(manifest | ({"status": status} if status else {}))


def asked(view):
    return {k: v for k, v in view.shape.requests.items() if k != "pods"}


@pytest.mark.parametrize(
    ("view", "cpu_milli", "memory_gi"),
    [
        (pod(container("2", "1Gi"), init=[sidecar("1", "2Gi")]), 3000, 3),
        (
            pod(
                container("2", "1Gi"),
                init=[container("4", "2Gi", name="init"), sidecar("3", "3Gi")],
                overhead={"cpu": "5", "memory": "1Gi"},
            ),
            10_000,
            5,
        ),
        (pod(container("2"), init=[sidecar("4"), container("10", name="init")]), 14_000, None),
        (pod(container("2"), init=[sidecar("4"), container("1", name="init")]), 6000, None),
        (
            pod(
                container("6", "2Gi"),
                init=[container("10", "4Gi", name="init"), sidecar("4900m", "2969Mi")],
            ),
            10_900,
            None,
        ),
        (
            pod(
                container("6", "2Gi"),
                init=[sidecar("4900m", "2969Mi"), container("5", "1Gi", name="init")],
            ),
            10_900,
            None,
        ),
        (
            pod(
                container("5", "1Gi"),
                init=[sidecar("4900m", "2969Mi"), container("6", "2Gi", name="init")],
            ),
            10_900,
            None,
        ),
        (
            pod(
                container("5", "1Gi"),
                init=[sidecar("6", "6Gi")],
                resources={"requests": {"cpu": "9900m", "memory": "4Gi"}},
            ),
            9900,
            4,
        ),
        (
            pod(container("1", "1Gi"), resources={"requests": {"cpu": "2", "memory": "2Gi"}}),
            2000,
            2,
        ),
        (pod(container(), resources={"limits": {"cpu": "10", "memory": "10Gi"}}), 10_000, 10),
        (pod(container("1"), overhead={"cpu": "2"}), 3000, None),
    ],
    ids=["39", "40", "41a", "41b", "42", "43a", "43b", "44", "45a", "45b", "55"],
)
def test_requests_follow_the_scheduler(view, cpu_milli, memory_gi):
    """Cases 39 to 45 and 55."""
    assert asked(view)["cpu"] == cpu_milli
    if memory_gi is not None:
        assert asked(view)["memory"] == memory_gi * GI


def resizing(spec_cpu, *, allocated=None, reported=None, reason=""):
    entry = {"name": "main"}
    if reported:
        entry["resources"] = {"requests": {"cpu": reported}}
    if allocated:
        entry["allocatedResources"] = {"cpu": allocated}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    status = {
        "phase": "Running",
        "containerStatuses": [entry],
        "conditions": conditions if reason else [],
    }
    return pod(container(spec_cpu), status=status)


@pytest.mark.parametrize(
    ("view", "cpu_milli"),
    [
        (resizing("2", allocated="6", reported="6"), 6000),
        (resizing("8", allocated="2", reported="2"), 8000),
        (resizing("4"), 4000),
        (resizing("4", allocated="6"), 4000),  # without a resources block nothing is read
        (resizing("8", allocated="2", reported="3", reason="Infeasible"), 3000),
        (resizing("8", allocated="2", reported="3", reason="Deferred"), 8000),
    ],
)
def test_a_resize_counts_the_most_that_is_held_or_wanted(view, cpu_milli):
    """Case 46."""
    assert asked(view) == {"cpu": cpu_milli}


def test_a_plain_init_container_ignores_its_status():
    """Only regular and restartable containers are resized in place."""
    status = {
        "initContainerStatuses": [
            {"name": "init", "resources": {"requests": {"cpu": "9"}}},
            {"name": "sidecar", "resources": {"requests": {"cpu": "3"}}},
        ]
    }
    init = [container("1", name="init"), sidecar("1")]
    assert asked(pod(container("1"), init=init, status=status)) == {"cpu": 4000}


def test_limits_become_requests_where_there_are_none():
    """The API server does this for pods; we do it for templates too."""
    view = pod(container("1", limits={"cpu": "2", "memory": "1Gi"}))
    assert asked(view) == {"cpu": 1000, "memory": GI}


def test_overhead_widens_limits_but_makes_none():
    """Limits are computed like requests, overhead only where there is a limit."""
    view = pod(container(limits={"cpu": "1"}), overhead={"cpu": "1", "memory": "1Gi"})
    assert view.shape.limits == {"cpu": 2000, "pods": 1}


def test_pod_level_resources_replace_only_cpu_memory_and_hugepages():
    """CPU, memory and huge pages; an extended resource stays with the containers."""
    resources = {"requests": {"hugepages-2Mi": "4Mi", "example.com/gpu": "7"}}
    view = pod(container("1"), resources=resources)
    assert asked(view) == {"cpu": 1000, "hugepages-2Mi": 4 * 2**20}


def test_a_quantity_beyond_every_node_is_cut_and_others_are_not():
    """Sums are kept in columns of 64 bits."""
    huge = f"{LARGEST_AMOUNT // 1000 + 1}"
    view = pod(container(huge, "1Gi"), container("1", name="other"))
    assert asked(view) == {"cpu": LARGEST_AMOUNT, "memory": GI}
    most = pod(container(f"{LARGEST_AMOUNT}m", "1Gi"))
    assert asked(most) == {"cpu": LARGEST_AMOUNT, "memory": GI}


def test_an_empty_pod_requests_one_pod_slot():
    """Case 47: sums and maxima of nothing are empty."""
    view = pod(container())
    assert view.shape.requests == {"pods": 1}
    assert view.shape.limits == {"pods": 1}


def test_amounts_are_rounded_up_to_their_unit():
    """Half a milli-core is one, half a byte is one."""
    assert asked(pod(container("100u", "500m"))) == {"cpu": 1, "memory": 1}


def test_a_malformed_quantity_names_pod_resource_and_value():
    """One clear error."""
    with pytest.raises(BadInputError, match=r'Pod "default/web": resource cpu: .*"12x"'):
        pod(container("12x"))


def pod_level_resize(spec_cpu, *, held, allocated=None, reason=""):
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return pod(
        container("1"),
        resources={"requests": {"cpu": spec_cpu, "memory": "1Gi"}},
        status={
            "phase": "Running",
            "resources": {"requests": {"cpu": held, "memory": "1Gi"}},
            "allocatedResources": {"cpu": allocated or held, "memory": "1Gi"},
            "conditions": conditions if reason else [],
        },
    )


@pytest.mark.parametrize(
    ("view", "cpu_milli"),
    [
        (pod_level_resize("2", held="6"), 6000),
        (pod_level_resize("8", held="2"), 8000),
        (pod_level_resize("2", held="3", allocated="5"), 5000),
        (pod_level_resize("8", held="2", reason="Infeasible"), 2000),
        (pod_level_resize("8", held="2", reason="Deferred"), 8000),
    ],
)
def test_a_resize_of_pod_level_resources_counts_like_one_of_containers(view, cpu_milli):
    """KEP-5419, on by default from Kubernetes 1.36."""
    assert asked(view) == {"cpu": cpu_milli, "memory": GI}


def test_pod_level_status_without_pod_level_requests_is_not_counted():
    """The scheduler reads that status only of pods whose spec has such requests."""
    view = pod(container("1"), status={"resources": {"requests": {"cpu": "6"}}})
    assert asked(view) == {"cpu": 1000}


def test_host_ports_of_sidecars_count():
    """The scheduler reserves the ports of restartable init containers, and of no other ones."""
    port = {"containerPort": 80, "hostPort": 8080}
    init = [
        {"name": "init", "ports": [port | {"hostPort": 9090}]},
        {"name": "proxy", "restartPolicy": "Always", "ports": [port]},
    ]
    view = pod(container("1"), init=init)
    assert [each.port for each in view.shape.host_ports] == [8080]
