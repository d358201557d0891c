"""The benchmark of provider start-ups reports its measurements and fails its gate."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

from benchmarks.provider_startup import SDKS, ImportCost, StartCost, StartupFigures, as_rows, holds

IMPORTED = ImportCost(seconds=2.0, cpu_seconds=0.5, resident_mib=60.0)
STARTED = StartCost(
    ready_seconds=3.0,
    ready_cpu_seconds=1.0,
    usable_seconds=4.0,
    usable_cpu_seconds=2.0,
    resident_mib=150.0,
    peak_mib=160.0,
)


def figures(provider="alibabacloud", *, compiled=True, cpu_seconds=(0.5,), resident_mib=60.0):
    return StartupFigures(
        provider=provider,
        compiled=compiled,
        imported=[
            replace(IMPORTED, cpu_seconds=each, resident_mib=resident_mib) for each in cpu_seconds
        ],
        started=[STARTED for _ in cpu_seconds],
    )


def test_one_slow_import_of_three_passes_the_gate():
    assert holds(figures(cpu_seconds=(0.5, 9.0, 0.6)))
    assert not holds(figures(cpu_seconds=(0.5, 1.0, 1.1)))


def test_memory_counts_as_much_as_time():
    assert not holds(figures(resident_mib=100.0))


def test_the_gate_is_for_compiled_sdks():
    assert holds(figures(compiled=False, cpu_seconds=(9.0,), resident_mib=500.0))


def test_ratios_are_to_the_same_kind_of_the_last_provider():
    rows = as_rows(
        [
            figures(cpu_seconds=(0.5, 0.6, 0.9)),
            figures(compiled=False, cpu_seconds=(3.0,)),
            figures("aws", cpu_seconds=(0.3,)),
            figures("aws", compiled=False, cpu_seconds=(1.0,)),
        ]
    )

    assert [row["import_cpu_seconds"] for row in rows] == [0.6, 3.0, 0.3, 1.0]
    assert [row["ratio"]["import_cpu_seconds"] for row in rows] == [2.0, 3.0, 1.0, 1.0]
    assert [row["runs"] for row in rows] == [3, 1, 1, 1]


@pytest.mark.parametrize("provider", sorted(SDKS))
def test_measured_modules_and_clients_can_be_loaded(provider):
    assert importlib.import_module(f"karpenter_provider_{provider}.started_provider")
    exec(SDKS[provider].clients, {})
