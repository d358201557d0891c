"""The maintenance window of node images is read from AKS's ConfigMap."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_provider_azure.images.maintenance import (
    END_KEY,
    START_KEY,
    MaintenanceWindowReader,
    window_read,
)
from providers.azure.tests.fake_arm import NOON, FakeObjects, HandClock

BEFORE = (NOON - timedelta(hours=1)).isoformat()
AFTER = (NOON + timedelta(hours=1)).isoformat()
LATER = (NOON + timedelta(hours=2)).isoformat()


def window(data=None, *, namespace="kube-system", is_there=True):
    objects = FakeObjects()
    if is_there:
        objects.objects["configmaps"] = [{} if data is None else {"data": data}]
    return MaintenanceWindowReader(HandClock(), objects, namespace=namespace)


@pytest.mark.parametrize(  # case 64
    "reader",
    [
        window(is_there=False),
        window(None),
        window({}),
        window({START_KEY: "", END_KEY: ""}),
        window({"aksManagedAutoUpgradeSchedule-start": AFTER}),
        window({START_KEY: AFTER}, namespace=""),
    ],
    ids=["no ConfigMap", "no data", "empty data", "empty keys", "other schedule", "no namespace"],
)
def test_without_a_schedule_the_window_is_always_open(reader):
    assert reader.is_open()


@pytest.mark.parametrize(
    ("start", "end", "is_open"),
    [
        (BEFORE, AFTER, True),
        (AFTER, LATER, False),
        (NOON.isoformat(), AFTER, False),
        (BEFORE, NOON.isoformat(), False),
        ("2020-01-01T00:00:00Z", "2040-01-01T00:00:00+02:00", True),
    ],
)
def test_the_window_is_open_between_start_and_end(start, end, is_open):
    assert window({START_KEY: start, END_KEY: end}).is_open() is is_open


@pytest.mark.parametrize(  # case 64
    ("data", "key", "value"),
    [
        ({START_KEY: BEFORE}, END_KEY, ""),
        ({END_KEY: AFTER}, START_KEY, ""),
        ({START_KEY: "tomorrow", END_KEY: AFTER}, START_KEY, "tomorrow"),
        ({START_KEY: BEFORE, END_KEY: "2030-01-01T13:00:00"}, END_KEY, "2030-01-01T13:00:00"),
    ],
)
def test_a_window_that_cannot_be_read_is_refused_with_object_key_and_value(data, key, value):
    with pytest.raises(BadInputError) as raised:
        window(data).is_open()

    message = str(raised.value)
    assert message.startswith(
        f'ConfigMap "kube-system/upcoming-maintenance-window": {key} is "{value}"'
    )


def test_a_config_map_that_was_never_read_is_not_a_missing_one():
    objects = FakeObjects()
    objects.problem = "configmaps is forbidden"
    reader = MaintenanceWindowReader(HandClock(), objects, namespace="kube-system")

    with pytest.raises(CloudProviderError, match="forbidden"):
        reader.is_open()
    assert objects.reads == [window_read("kube-system")]
