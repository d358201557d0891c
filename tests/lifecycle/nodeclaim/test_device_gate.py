"""A node is initialised once the drivers of its devices have published them (case 54)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.devices import ResourceSliceView
from karpenter_core.api.labels import REQUESTED_DRA_DRIVERS
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.lifecycle.nodeclaim.initialization import initialization_step
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim

LATER = EPOCH + timedelta(seconds=30)


def published(driver="gpu", *, generation=1, count=1, name="a"):
    return ResourceSliceView(
        uid=name,
        name=name,
        driver=driver,
        pool="ip-1",
        generation=generation,
        slice_count=count,
        node_name="ip-1",
    )


def outcome(drivers, slices):
    claim = node_claim("web", stage="Registered")
    annotations = {**claim.metadata.annotations}
    if drivers:
        annotations[REQUESTED_DRA_DRIVERS] = drivers
    metadata = claim.metadata.model_copy(update={"annotations": annotations})
    claim = claim.model_copy(update={"metadata": metadata})
    grown = node("ip-1", claim=claim, stage="Registered")
    step = initialization_step(claim, [grown], now=LATER, slices=slices)
    found = find_condition(step.claim.status.conditions, INITIALIZED)
    return found.status, found.reason, found.message


WAITING = (
    "Unknown",
    "DRADriverPoolsNotPublished",
    'DRA driver "gpu" has not published a complete resource pool',
)
HALF = published(count=2)
NEWER_HALF = msgspec.structs.replace(published(generation=2, count=2), name="b")


@pytest.mark.parametrize(
    "slices",
    [(), (HALF,), (published(), NEWER_HALF), (published("nic"),), (published(count=0),)],
    ids=["none", "incomplete", "newer is incomplete", "other driver", "no count"],
)
def test_a_node_waits_for_a_complete_pool_of_its_driver(slices):
    assert outcome("gpu", slices) == WAITING


def test_a_complete_pool_initialises_the_node():
    assert outcome("gpu", [published()])[0] == "True"
    assert outcome("gpu", [HALF, msgspec.structs.replace(HALF, name="b")])[0] == "True"
    assert outcome("gpu", [msgspec.structs.replace(HALF, generation=0), published()])[0] == "True"


def test_every_driver_has_to_publish():
    assert outcome("gpu, nic", [published()])[2].startswith('DRA driver "nic"')
    assert outcome("gpu, nic", [published(), published("nic")])[0] == "True"


def test_nothing_is_waited_for_without_drivers_or_while_devices_are_ignored():
    assert outcome("", ())[0] == "True"
    assert outcome("gpu", None)[0] == "True"
