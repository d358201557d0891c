"""Failed instances of a listing are announced until the core has acknowledged them."""

from __future__ import annotations

import pytest

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.errors import CloudProviderError, InsufficientCapacityError, LaunchFailedError
from karpenter_core.provider.kit.late_failures import LateFailures
from karpenter_core.testing.state_builders import node_claim

SOLD_OUT = InsufficientCapacityError("no capacity")
BROKEN = LaunchFailedError("the image does not boot")


class Cloud:
    def __init__(self, **failures):
        self.failures = failures
        self.reads = 0

    def read(self):
        self.reads += 1
        return self.failures


def failures_of(cloud, *claims):
    return LateFailures(cloud.read, lambda: {claim.name: claim for claim in claims})


def test_failures_are_announced_with_their_errors():
    failures = failures_of(Cloud(b=BROKEN, a=SOLD_OUT), node_claim("web", stage="Launched"))

    announced = failures.poll()

    assert [(each.provider_id, each.error) for each in announced] == [
        ("a", SOLD_OUT),
        ("b", BROKEN),
    ]
    assert {each.kind for each in announced} == {InterruptionKind.LAUNCH_FAILED}
    assert failures.poll() == announced


def test_acknowledged_failure_is_announced_no_more():
    failures = failures_of(Cloud(a=SOLD_OUT, b=BROKEN), node_claim("web", stage="Launched"))
    first, second = failures.poll()

    failures.acknowledge([first.id, "another message"])

    assert failures.poll() == [second]


@pytest.mark.parametrize("stage", ["Created", "Registered", "Initialized"])
def test_cloud_is_not_called_while_no_launch_is_under_way(stage):
    cloud = Cloud(a=SOLD_OUT)
    claims = [] if stage == "Created" else [node_claim("web", stage=stage)]

    assert failures_of(cloud, *claims).poll() == []
    assert cloud.reads == 0


def test_error_of_the_listing_is_raised():
    def unreachable():
        raise CloudProviderError("connection refused")

    claim = node_claim("web", stage="Launched")
    with pytest.raises(CloudProviderError, match="refused"):
        LateFailures(unreachable, lambda: {"web": claim}).poll()
