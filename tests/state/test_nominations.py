"""A nomination stands while its node is there, is to stay, and the scheduler has time."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.state.events import DeletionMarked
from karpenter_core.state.placements import nomination_stands, nomination_window
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.machines import machine, state

NOMINATED = msgspec.structs.replace(pod("web"), nominated_node_name="web-1")


def test_a_nomination_of_the_scheduler_stands_while_the_node_stays():
    builder = state(*machine("web-1"), NOMINATED)
    assert nomination_stands(builder.snapshot(), NOMINATED, now=EPOCH)


def test_a_nomination_ends_with_the_decision_to_delete_its_machine():
    builder = state(*machine("web-1"), NOMINATED)
    builder.fold(DeletionMarked(names=("web-1",), cause="empty/1"))
    assert not nomination_stands(builder.snapshot(), NOMINATED, now=EPOCH)


def test_a_nomination_of_a_node_that_is_gone_is_void():
    builder = state(NOMINATED)
    assert not nomination_stands(builder.snapshot(), NOMINATED, now=EPOCH)


@pytest.mark.parametrize(("batch_maximum", "window"), [(1, 10), (5, 10), (6, 12), (30, 60)])
def test_the_window_is_two_batches_and_at_least_ten_seconds(batch_maximum, window):
    found = nomination_window(timedelta(seconds=batch_maximum))
    assert found == timedelta(seconds=window)
