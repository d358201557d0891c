"""Computes our plans for clusters by the functions of `karpenter plan`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from karpenter_core.cli.cluster_source import ClusterSource, PackingMode
from karpenter_core.cli.document import plan_document
from karpenter_core.cli.plan import solve_cluster


def plan(cluster, types, packing="value"):
    """Return the JSON document of the plan, without timings."""
    read = _read(cluster, types, packing)
    return plan_document(read, solve_cluster(read))


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
