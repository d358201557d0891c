"""The benchmark of API calls counts requests exactly, and alike in each run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.api_calls import count_calls, shown

NODES = 3


@pytest.fixture(scope="module")
def counts():
    return count_calls("kwok", NODES)


def test_one_claim_and_one_node_are_created_for_each_pod(counts):
    assert counts.launch["POST nodeclaims"] == counts.launch["POST nodes"] == NODES


def test_an_idle_cluster_is_only_reminded_of_by_events(counts):
    """Each node and its claim are reported as not to be consolidated every quarter of an hour."""
    assert dict(counts.idle) == {"PATCH events": 2 * 4 * NODES}


def test_counts_are_the_same_in_each_run(counts):
    assert replace(count_calls("kwok", NODES), seconds=counts.seconds) == counts


def test_a_table_has_a_column_for_each_part_and_a_row_for_each_call(counts):
    table = shown([counts])

    assert [column.header for column in table.columns] == [
        "call", "start", f"launch {NODES}", f"idle hour {NODES}",
    ]  # fmt: skip
    assert table.row_count == len({*counts.start, *counts.launch, *counts.idle}) + 1
