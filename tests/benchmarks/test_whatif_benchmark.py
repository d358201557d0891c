"""The benchmark of what-ifs reports its measurements."""

from __future__ import annotations

import pytest

from benchmarks.whatif import cluster, gates, measure

FIGURES = {
    "nodes": 1000,
    "tight": False,
    "warm_per_second": 10_000.0,
    "cold_per_second": 800.0,
    "pass_seconds": 5.0,
    "prefixes_seconds": 1.0,
    "growth_seconds": 1.0,
    "repacked_set_of_ten_ms": 15.0,
    "solve_again_ms": 20.0,
    "peak_mib": 400.0,
}
LARGE = FIGURES | {"nodes": 5000, "peak_mib": 700.0}


def held(*rows):
    """Return which gates hold."""
    return {gate.name: gate.holds for gate in gates(rows)}


def test_gates_hold_at_their_figures():
    """Figures equal to the gate pass."""
    assert held(FIGURES, LARGE) == {"W1": True, "W2": True, "M1": True}


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({"warm_per_second": 9_999.0}, "W1"),
        ({"cold_per_second": 799.0}, "W1"),
        ({"pass_seconds": 5.1}, "W2"),
        ({"growth_seconds": 1.1}, "W2"),
        ({"repacked_set_of_ten_ms": 15.1}, "W2"),
        ({"peak_mib": 701.0}, "M1"),
    ],
)
def test_a_gate_fails_below_its_figure(change, failing):
    """A failed gate is reported."""
    assert [name for name, holds in held(FIGURES, LARGE | change).items() if not holds] == [failing]


def test_a_tight_cluster_has_next_to_nothing_left():
    """Of CPU and memory, on any node."""
    for node in cluster(15, tight=True).problem.nodes:
        assert node.available["cpu"] <= node.capacity["cpu"] * 0.02 + 50
        assert node.available["memory"] <= node.capacity["memory"] * 0.02 + 64 * 2**20


def test_every_node_of_a_cluster_is_simulated(monkeypatch):
    """And every question has an outcome."""
    monkeypatch.setattr("benchmarks.whatif.SETS", 1)
    monkeypatch.setattr("benchmarks.whatif.BASELINE_CALLS", 1)
    monkeypatch.setattr("benchmarks.whatif.PREFIXES", range(2, 4))
    row = measure(8, tight=False)

    assert sum(row["outcomes"].values()) == row["nodes"] > 0
    assert row["growth_nodes"] <= row["nodes"]
