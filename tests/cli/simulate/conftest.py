"""Runs simulations of small clusters."""

from __future__ import annotations

import json

import pytest

from tests.cli.inputs import TYPES, pool, write

CONSOLIDATING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "30s",
    "budgets": [{"nodes": "100%"}],
}


@pytest.fixture
def node_pools(tmp_path):
    """A file with one NodePool that is consolidated."""
    return write(tmp_path / "pools.yaml", pool(disruption=CONSOLIDATING))


@pytest.fixture
def simulate(program, tmp_path, node_pools):
    """Simulate a workload on a few instance types; the catalogue and the options may be others."""

    def run(workload, *options, types=TYPES, output="json", code=0, pools=node_pools):
        catalogue = tmp_path / "types.json"
        catalogue.write_text(json.dumps(types))
        file = tmp_path / "workload.yaml"
        if isinstance(workload, dict):
            file.write_text(json.dumps(workload))
        else:
            file = workload
        shown = program(
            "simulate", "--nodepools", pools, "--workload", file, "--instance-types-file", catalogue,
            "--jobs", 1, "-o", output, *options, code=code,
        )  # fmt: skip
        if code == 2:
            return shown.err
        return json.loads(shown.out) if output == "json" else shown.out

    return run
