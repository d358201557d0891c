"""Every file content gives a plan or an error in one line; never a traceback."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.cli.main import main
from tests.cli.inputs import NODE_CLASS_REF, TYPES, node, pod, pool, write
from tests.properties import with_examples

ZONE = "topology.kubernetes.io/zone"
SELECTOR = {
    "matchLabels": {"app": "a"},
    "matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}],
}
IN_ZONE = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}


def term(key):
    return {"topologyKey": key, "labelSelector": SELECTOR, "namespaceSelector": SELECTOR}


def affinity(kind, key):
    return {
        kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": [term(key)],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": term(key)}
            ],
        }
    }


FULL = pod(
    "full",
    metadata={"labels": {"app": "a"}},
    nodeSelector={"kubernetes.io/arch": "amd64"},
    tolerations=[{"key": "t", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [IN_ZONE]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": IN_ZONE}
            ],
        },
        **affinity("podAffinity", ZONE),
        **affinity("podAntiAffinity", "kubernetes.io/hostname"),
    },
    topologySpreadConstraints=[
        {
            "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": SELECTOR, "minDomains": 1, "matchLabelKeys": ["app"],
            "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore",
        }
    ],
    volumes=[
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
    ],
    hostNetwork=True,
    overhead={"cpu": "10m"},
    initContainers=[{"name": "i", "resources": {"requests": {"cpu": "1m"}}}],
    resources={"requests": {"cpu": "1"}},
)  # fmt: skip
FULL["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
FULL["status"] = {"phase": "Pending", "nominatedNodeName": "n1", "conditions": [{"type": "x"}]}

CLUSTER = {
    "nodePools": [
        pool(
            labels={"team": "x"},
            template={
                "taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}],
                "requirements": [{**IN_ZONE["matchExpressions"][0], "minValues": 1}],
                "expireAfter": "720h",
            },
            weight=5,
            limits={"cpu": "100", "nodes": "10"},
        )
    ],
    "nodeClaims": [
        {
            "metadata": {"name": "general-1", "labels": {"karpenter.sh/nodepool": "general"}},
            "spec": {
                "nodeClassRef": NODE_CLASS_REF,
                "requirements": IN_ZONE["matchExpressions"],
                "resources": {"requests": {"cpu": "1"}},
            },
            "status": {"providerID": "test://n1", "nodeName": "n1", "capacity": {"cpu": "1"}},
        }
    ],
    "nodes": [
        node("n1", labels={ZONE: "z1"}, taints=[{"key": "t", "value": "v", "effect": "NoSchedule"}])
    ],
    "boundPods": [pod("r", cpu="10m", nodeName="n1")],
    "pods": [FULL, pod("a")],
    "daemonSetPods": [pod("agent", cpu="1m")],
    "daemonSets": [
        {
            "metadata": {"name": "ds", "namespace": "shop"},
            "spec": {"selector": SELECTOR, "template": {"spec": {"containers": [{"name": "x"}]}}},
        }
    ],
    "namespaces": [{"metadata": {"name": "shop", "labels": {"a": "b"}}}],
    "podDisruptionBudgets": [
        {
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"selector": SELECTOR, "maxUnavailable": "50%"},
            "status": {"disruptionsAllowed": 1},
        }
    ],
    "storageClasses": [
        {
            "metadata": {"name": "fast"},
            "provisioner": "x",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}],
        }
    ],
    "persistentVolumeClaims": [
        {
            "metadata": {"name": "data", "namespace": "shop"},
            "spec": {"volumeName": "disk", "storageClassName": "fast"},
        }
    ],
    "persistentVolumes": [
        {
            "metadata": {"name": "disk"},
            "spec": {
                "csi": {"driver": "x"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [IN_ZONE]}},
            },
        }
    ],
    "csiNodes": [
        {
            "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": "x", "nodeID": "n1", "allocatable": {"count": 5}}]},
        }
    ],
}

STRANGE = [
    None, [], {}, "", -1, 0, 2**70, 1e99, True, "x", "In", [None], [1], ["x"], {"x": 1}, {"x": None},
    {"metadata": None}, "1Gi", "1e99", "-5", "10%", "\ud800", "é" * 300, [[]], [{}], "2024-01-31", "*",
]  # fmt: skip


def paths(value, path=()):
    """Yield the way to everything inside."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in entries:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from paths(inner, (*path, key))


def changed(path, value, *, is_gone):
    """Return the cluster with something else, or nothing, at one place."""
    cluster = json.loads(json.dumps(CLUSTER))
    *way, last = path
    place = cluster
    for key in way:
        place = place[key]
    if is_gone:
        del place[last]
    else:
        place[last] = value
    return cluster


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return folder / "cluster.json", write(folder / "types.json", TYPES)


@with_examples(40)
@given(
    path=st.sampled_from(list(paths(CLUSTER))),
    value=st.sampled_from(STRANGE),
    is_gone=st.sampled_from([False, False, False, True]),
    command=st.sampled_from([("plan",), ("plan", "-o", "json"), ("explain", "pod", "shop/full")]),
)
def test_every_file_gets_a_plan_or_one_line(files, path, value, is_gone, command):
    """With exit code 0 or 2."""
    file, types = files
    write(file, changed(path, value, is_gone=is_gone))
    out, err = io.StringIO(), io.StringIO()

    arguments = (*command, "--offline", str(file), "--instance-types-file", str(types))
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main(arguments)

    assert ended.value.code in {0, 2}
    if ended.value.code == 2:
        (line,) = err.getvalue().strip().splitlines()
        assert line.startswith("karpenter: ")
        assert out.getvalue() == ""
