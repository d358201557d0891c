"""The last answer of a cloud is used while it does not answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.last_answer import LastAnswer
from tests.provider.cloud_node_classes import HandClock


class Version:
    def __init__(self, **more):
        self.clock, self.text, self.error, self.count, self.failures = HandClock(), "1", None, 0, []
        self.last = LastAnswer(
            self.clock,
            timedelta(minutes=15),
            self.read,
            note_failure=lambda error: self.failures.append(str(error)),
            **more,
        )

    def read(self):
        self.count += 1
        if self.error:
            raise self.error
        return self.text


def test_a_value_is_read_again_when_it_expires():
    version = Version()

    assert version.last.get() == "1"
    version.text = "2"
    version.clock.forward(minutes=14)
    assert version.last.get() == "1"
    version.clock.forward(minutes=1)
    assert version.last.get() == "2"
    assert version.count == 2


def test_the_last_value_is_used_however_old_while_reads_fail():
    version = Version()
    version.last.get()
    version.error = CloudProviderError("no route")

    for _ in range(3):
        version.clock.forward(days=1)
        assert version.last.get() == "1"
    assert version.failures == ["no route"] * 3

    version.error, version.text = None, "2"
    assert version.last.get() == "2"


@pytest.mark.parametrize(("retry_after", "count"), [(0, 4), (60, 2)])
def test_a_failed_read_is_repeated_after_a_while(retry_after, count):
    version = Version(retry_after=timedelta(seconds=retry_after))
    version.last.get()
    version.error = CloudProviderError("no route")
    version.clock.forward(hours=1)

    for _ in range(3):
        version.last.get()
        version.clock.forward(seconds=10)

    assert version.count == count


def test_without_a_last_value_the_error_is_raised_and_not_remembered():
    version = Version(retry_after=timedelta(minutes=1))
    version.error = CloudProviderError("no route")
    with pytest.raises(CloudProviderError, match="no route"):
        version.last.get()

    version.error = None
    assert version.last.get() == "1"
