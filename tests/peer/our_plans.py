"""Computes our plans for clusters by the functions of `karpenter plan`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from karpenter_core.cli.cluster_source import ClusterSource, PackingMode
from karpenter_core.cli.document import plan_document
from karpenter_core.cli.plan import solve_cluster
from karpenter_core.scheduling.problem import PackingPolicy


def plan(cluster, types, packing="value"):
    """Return the JSON document of the plan, without timings."""
    return plans(cluster, types, packing)[0]


def plans(cluster, types, *packings):
    """Return such a document for each packing; reading the cluster takes longer than any plan."""
    read = _read(cluster, types, packings[0])
    chosen = [replace(read.options, packing=PackingPolicy(packing)) for packing in packings]
    inputs = [replace(read, options=options) for options in chosen]
    return [plan_document(each, solve_cluster(each)) for each in inputs]


def faults(cluster, types, packing="value"):
    """Return what the verifier of plans finds wrong with ours."""
    from tests.verifier import violations

    read = _read(cluster, types, packing)
    return violations(read.input.problem, solve_cluster(read))


def _read(cluster, types, packing):
    with tempfile.TemporaryDirectory(prefix="karpenter-peer-") as folder:
        files = Path(folder) / "cluster.json", Path(folder) / "types.json"
        for file, content in zip(files, (cluster, types), strict=True):
            file.write_text(json.dumps(content))
        source = ClusterSource(
            files=files[:1],
            offline=True,
            instance_types_file=files[1],
            packing=PackingMode(packing),
        )
        return asyncio.run(source.read()).cluster
