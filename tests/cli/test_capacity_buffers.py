"""CapacityBuffers in `karpenter plan` and `karpenter explain`: their pods are shown apart."""

from __future__ import annotations

import json

import pytest
import yaml

from karpenter_core.cli.main import main

GROUP = "karpenter.kwok.sh"
REQUESTS = {"cpu": "1500m", "memory": "1Gi"}
SPEC = {"containers": [{"name": "web", "image": "nginx", "resources": {"requests": REQUESTS}}]}
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "general"},
    "spec": {
        "limits": {"cpu": "6"},
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
        "template": {
            "spec": {
                "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": f"{GROUP}/instance-cpu", "operator": "In", "values": ["2"]},
                    {
                        "key": "karpenter.sh/capacity-type",
                        "operator": "In",
                        "values": ["on-demand"],
                    },
                ],
            }
        },
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 10,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": SPEC},
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "real", "namespace": "default"},
    "spec": SPEC,
}
BUFFER = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "headroom", "namespace": "default"},
    "spec": {
        "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"},
        "percentage": 50,
    },
}
CONDITIONS = ("Launched", "Registered", "Initialized", "Consolidatable", "Ready")


def empty_node(name="node-1"):
    """A Node with its claim, which nothing but room for virtual pods keeps."""
    labels = {
        "karpenter.sh/nodepool": "general",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/registered": "true",
        "karpenter.sh/capacity-type": "on-demand",
        "topology.kubernetes.io/zone": "test-zone-a",
        "node.kubernetes.io/instance-type": "std1.large",
        f"{GROUP}/instance-cpu": "2",
    }
    room = {"cpu": "2", "memory": "8Gi", "pods": "20"}
    since = "2030-01-01T00:00:00Z"
    return (
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": f"kwok://{name}"},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        },
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"},
            },
            "status": {
                "providerID": f"kwok://{name}",
                "nodeName": name,
                "conditions": [
                    {
                        "type": each, "status": "True", "reason": each, "message": "",
                        "lastTransitionTime": since,
                    }
                    for each in CONDITIONS
                ],
            },
        },
    )  # fmt: skip


@pytest.fixture
def run(tmp_path, capsys):
    """Run a command on objects; return its output, read as JSON where that is asked for."""

    def run(words, *objects):
        file = tmp_path / "objects.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        with pytest.raises(SystemExit) as ended:
            main([*words, "--offline", str(file)])
        assert not ended.value.code
        captured = capsys.readouterr()
        return json.loads(captured.out) if "json" in words else captured.out + captured.err

    return run


def test_virtual_pods_have_a_list_of_their_own(run):
    document = run(["plan", "-o", "json"], POOL, DEPLOYMENT, POD, BUFFER)

    found = document["virtualPods"]["CapacityBuffer default/headroom"]
    message = found.pop("message")
    assert found == {"wanted": 5, "existingNodes": 0, "newNodes": 2, "unschedulable": 3}
    assert "limit" in message
    assert [pod for claim in document["nodeClaims"] for pod in claim["pods"]] == ["default/real"]
    assert document["unschedulable"] == {}
    virtual = [claim.get("virtualPods", {}) for claim in document["nodeClaims"]]
    assert sum(sum(counts.values()) for counts in virtual) == 2


def test_a_plan_without_buffers_speaks_of_no_virtual_pods(run):
    document = run(["plan", "-o", "json"], POOL, DEPLOYMENT, POD)

    assert "virtualPods" not in document
    assert all("virtualPods" not in claim for claim in document["nodeClaims"])


def test_the_table_has_a_line_for_each_buffer(run):
    text = run(["plan"], POOL, DEPLOYMENT, POD, BUFFER, *empty_node())

    line = next(line for line in text.splitlines() if line.startswith("buffer "))
    assert line.startswith("buffer default/headroom: ")
    assert " of 5 fit on existing nodes" in line
    assert "2 on nodes to launch" in line


def test_a_buffer_without_template_is_noted(run):
    text = run(["plan"], POOL, BUFFER)

    assert 'buffer "default/headroom" has no room: deployments.apps "web" not found' in text


def test_a_pod_shares_its_node_with_no_virtual_pod_by_name(run):
    document = run(["explain", "pod", "real", "-o", "json"], POOL, DEPLOYMENT, POD, BUFFER)

    assert document["state"] == "launch"
    assert document["placement"]["pods"] == []


def test_an_empty_node_with_room_for_a_buffer_stays(run):
    """Without the buffer it goes."""
    words = ["explain", "node", "node-1", "-o", "json"]
    one = {**BUFFER, "spec": {**BUFFER["spec"], "percentage": 10}}
    kept = run(words, POOL, DEPLOYMENT, one, *empty_node())
    alone = run(words, POOL, DEPLOYMENT, *empty_node())

    assert (kept["virtualPods"], kept["methods"]["emptiness"]["declined"]) == (1, "buffer")
    assert "virtualPods" not in alone
    assert alone["state"] == "disrupted"


def test_only_the_nodes_that_the_room_needs_are_kept(run):
    """Another empty node goes."""
    small = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 1}}
    nodes = (*empty_node(), *empty_node("node-2"))
    objects = (POOL, small, BUFFER, *nodes)
    one = run(["explain", "node", "node-1", "-o", "json"], *objects)
    other = run(["explain", "node", "node-2", "-o", "json"], *objects)

    assert (one["virtualPods"], one["methods"]["emptiness"]["declined"]) == (1, "buffer")
    assert "virtualPods" not in other
    assert other["methods"]["emptiness"]["verdict"] == "chosen"
