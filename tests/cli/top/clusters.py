"""A cluster with nodes in every state, and pods with every kind of reason."""

from __future__ import annotations

import json

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.top.feed import view_of
from karpenter_core.cli.top.view import ViewOptions
from tests.cli.inputs import POOL, TYPES, node, pod, pool, write
from tests.cli.test_explain_node import claim_with_node, condition, web

LONG_AGO = "2024-01-01T00:00:00Z"


def manifests():
    """Return the objects."""
    busy = claim_with_node("busy")
    drained = claim_with_node(
        "drained", conditions=[condition("DisruptionReason")], deleted=LONG_AGO
    )
    chosen = claim_with_node("chosen", conditions=[condition("DisruptionReason")])
    ending = claim_with_node(
        "ending", conditions=[condition("Drained"), condition("InstanceTerminating")],
        deleted=LONG_AGO,
    )  # fmt: skip
    cordoned = claim_with_node("cordoned", of="batch")
    cordoned[1]["spec"]["unschedulable"] = True
    silent = claim_with_node("silent")
    silent[1]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    asked, _ = claim_with_node("asked", of="batch")
    asked["status"] = {"conditions": []}
    booting, _ = claim_with_node("booting", of="batch")
    booting["status"] = {"providerID": "test://booting", "conditions": [condition("Launched")]}
    young = claim_with_node("young")
    young[0]["status"]["conditions"] = [condition("Launched"), condition("Registered")]
    young[1]["metadata"]["labels"].pop("karpenter.sh/initialized")
    pods = [web(f"web-{number}", "busy", cpu="700m") for number in range(5)]
    finished = pod("done", nodeName="busy")
    finished["status"] = {"phase": "Succeeded"}
    running = web("running", "busy", cpu="100m")
    running["status"] = {"phase": "Running"}
    return [
        POOL, pool("batch", limits={"cpu": "100", "memory": "200Gi"}),
        *busy, *drained, *chosen, *ending, *cordoned, *silent, asked, booting, *young,
        node("own"), *pods, finished, running,
        pod("huge", cpu="100"), pod("large", cpu="15"), pod("small", cpu="100m"),
        pod("gated", schedulingGates=[{"name": "queue"}]),
    ]  # fmt: skip


def write_cluster(folder):
    """Write the objects and the catalogue; return the arguments that name them."""
    (folder / "types.json").write_text(json.dumps(TYPES))
    write(folder / "cluster.yaml", *manifests())
    return (
        "--offline", folder / "cluster.yaml", "--instance-types-file", folder / "types.json",
    )  # fmt: skip


async def read_view(folder, *, resources=("cpu", "memory"), **options):
    """Return the view of the cluster."""
    write_cluster(folder)
    source = ClusterSource(
        files=(folder / "cluster.yaml",), offline=True, instance_types_file=folder / "types.json"
    )
    options = {"node_selector": {}, **options}
    return view_of(await source.read(), ViewOptions(resources=resources, **options))
