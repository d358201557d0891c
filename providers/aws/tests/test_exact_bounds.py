"""Limits, sizes and ages are decided exactly at their bound."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import ON_DEMAND, RESERVED
from karpenter_core.testing.builders import EPOCH
from karpenter_provider_aws.api.options import BlockDevice
from karpenter_provider_aws.catalogue import requirements
from karpenter_provider_aws.catalogue.requirements import TypeRequirements
from karpenter_provider_aws.instance_tagger import _FINAL_KEYS, InstanceTagger
from karpenter_provider_aws.interruption.queue import InterruptionQueue, _is_waiting
from karpenter_provider_aws.kubelet import expressions
from karpenter_provider_aws.kubelet.checks import _grace_finding
from karpenter_provider_aws.kubelet.expressions import ExpressionError
from karpenter_provider_aws.launch.plans import LaunchContext
from karpenter_provider_aws.prices import read_spot_history
from karpenter_provider_aws.registration import PartitionGate
from providers.aws.tests.catalogue.recorded_region import info


@pytest.mark.parametrize(("text", "size"), [("", None), ("0", None), ("1", 1), ("x", None)])
def test_a_volume_of_any_size_has_one(text, size):
    assert BlockDevice(volume_size=text).size_bytes == size


def test_no_more_sets_of_requirements_are_kept_than_the_bound(monkeypatch):
    monkeypatch.setattr(requirements, "_MOST_SETS", 2)
    memory = TypeRequirements("eu-west-1")
    sizes = []
    for number in range(4):
        memory.find(info("m5.large"), (("team", (str(number),)),))
        sizes.append(len(memory._sets))
    assert sizes == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("keys", "is_tagged"),
    [
        (_FINAL_KEYS, True),
        (_FINAL_KEYS | {"team"}, True),
        (frozenset(sorted(_FINAL_KEYS)[1:]), False),
        (None, False),
    ],
)
def test_an_instance_is_tagged_once_it_has_all_tags(keys, is_tagged):
    tags = None if keys is None else dict.fromkeys(keys, "x")
    tagger = SimpleNamespace(_queue=SimpleNamespace(listed_tags=lambda _id: tags))
    assert InstanceTagger._is_tagged(tagger, "i-1") is is_tagged


def held(*, hidden_until=10.0, forgotten_at=20.0, announced=("a",), acknowledged=()):
    return SimpleNamespace(
        hidden_until=hidden_until,
        forgotten_at=forgotten_at,
        announced=announced,
        acknowledged=set(acknowledged),
    )


@pytest.mark.parametrize(
    ("message", "now", "is_waiting"),
    [
        (held(), 9.0, True),
        (held(), 10.0, False),
        (held(announced=()), 9.0, True),
        (held(acknowledged=("a",)), 9.0, False),
        (held(announced=("a", "b"), acknowledged=("a",)), 9.0, True),
    ],
)
def test_a_message_waits_until_the_queue_brings_it_again(message, now, is_waiting):
    assert _is_waiting(message, now) is is_waiting


@pytest.mark.parametrize(("now", "kept"), [(19.0, ["m"]), (20.0, [])])
def test_a_message_is_forgotten_at_its_time(now, kept):
    received = {"m": held(hidden_until=30.0)}
    queue = SimpleNamespace(
        _clock=SimpleNamespace(monotonic=lambda: now), _lock=nullcontext(), _received=received
    )
    assert InterruptionQueue._unannounced(queue) is bool(kept)
    assert list(received) == kept


@pytest.mark.parametrize(("text", "is_good"), [("0s", True), ("1s", True), ("-1s", False)])
def test_a_grace_period_may_be_nothing(text, is_good):
    assert (_grace_finding(text) == "") is is_good


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_an_expression_of_the_longest_length_is_read(more, is_refused):
    assert expressions._LONGEST == 2048
    text = "1" + " " * (2047 + more)
    with pytest.raises(ExpressionError, match="longer") if is_refused else nullcontext():
        expressions._compiled(text)


@pytest.mark.parametrize(
    ("shifted", "capacity_type", "left", "is_closed"),
    [
        (False, RESERVED, 0, True),
        (False, RESERVED, 1, False),
        (False, ON_DEMAND, 0, False),
        (True, ON_DEMAND, 1, True),
    ],
)
def test_a_reservation_is_closed_once_nothing_of_it_is_left(
    shifted, capacity_type, left, is_closed
):
    offering = SimpleNamespace(
        zone="a",
        capacity_type=capacity_type,
        requirements=SimpleNamespace(single_value=lambda _key: "cr-1"),
    )
    context = SimpleNamespace(
        shifted=SimpleNamespace(has=lambda _zone: shifted), reserved_left=lambda _id: left
    )
    assert LaunchContext._is_closed(context, offering) is is_closed


@pytest.mark.parametrize(("price", "known"), [("0", {}), ("0.1", {("m5.large", "a"): 0.1})])
def test_nothing_is_sold_for_nothing(price, known):
    item = {
        "InstanceType": "m5.large", "AvailabilityZone": "a", "SpotPrice": price, "Timestamp": EPOCH,
    }  # fmt: skip
    assert read_spot_history([item]) == known


@pytest.mark.parametrize(
    ("group", "has_partitions"),
    [
        (None, False),
        (SimpleNamespace(partitions=0), False),
        (SimpleNamespace(partitions=1), True),
    ],
)
def test_a_group_of_one_partition_has_partitions(group, has_partitions):
    gate = SimpleNamespace(_groups=SimpleNamespace(found_or_last=lambda _selector: group))
    assert PartitionGate._has_partitions(gate, "pg-1") is has_partitions
