"""The sample provider of a REST cloud keeps the contract, and launches claims side by side."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from karpenter_core.errors import (
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import rule_steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "provider_rest"
MODULES = ("karpenter_provider_sample", "karpenter_simulated_sample")


@pytest.fixture
def example(monkeypatch):
    """Make the example importable, as if it were installed."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in [name for name in sys.modules if name.startswith(MODULES)]:
        del sys.modules[name]


@pytest.fixture
def subject(example):
    from karpenter_simulated_sample.testing import subject

    with subject() as found:
        yield found


CLAIMS = 40
CREATE_SECONDS = 1.0


async def test_forty_claims_are_launched_side_by_side(example, tmp_path):
    """Creates that take a second each are open together; nothing waits for its turn for long."""
    from karpenter_simulated_sample.testing import subject_of

    with slow_cloud() as cloud:
        slow = subject_of(cloud)
        slow = replace(slow, settings={"sample-endpoint": cloud.endpoint_url})
        async with rule_steps.new_world(slow, tmp_path) as world:
            requests = [await world.request(f"n-{n}", slow.node_class) for n in range(CLAIMS)]
            outcomes = await asyncio.gather(*(world.launch(request) for request in requests))
    assert len({outcome.provider_id for outcome in outcomes}) == CLAIMS
    assert cloud.calls.count("create") == CLAIMS
    assert cloud.most_open >= 8


def slow_cloud():
    """Return a cloud whose creates take a second, and that counts those that are open together."""
    from karpenter_simulated_sample.cloud import SimulatedSampleCloud

    class SlowCloud(SimulatedSampleCloud):
        lock, open, most_open = threading.Lock(), 0, 0

        def carry_out(self, call):
            if call.action == "create":
                with self.lock:
                    self.open += 1
                    self.most_open = max(self.most_open, self.open)
                time.sleep(CREATE_SECONDS)
                with self.lock:
                    self.open -= 1
            return super().carry_out(call)

    return SlowCloud()


async def test_a_throttled_launch_says_how_long_to_wait(example, tmp_path):
    """And so does every call of its operation class until then, without another request."""
    from karpenter_simulated_sample.cloud import SimulatedSampleCloud
    from karpenter_simulated_sample.testing import subject_of

    with SimulatedSampleCloud() as cloud:
        subject = subject_of(cloud)
        async with rule_steps.new_world(subject, tmp_path) as world:
            requests = [await world.request(f"n-{n}", subject.node_class) for n in range(3)]
            cloud.throttling.set({"write": SimulatedCallRate(bucket=1, refill=0.02)})
            outcomes = [await world.launch(request) for request in requests]
    assert isinstance(outcomes[0], LaunchedInstance)
    for outcome in outcomes[1:]:
        assert isinstance(outcome, ThrottledError)
        assert timedelta(seconds=30) < outcome.retry_after <= timedelta(seconds=50)
    assert cloud.calls.count("create") == 2


@pytest.mark.parametrize(
    ("code", "error", "scope"),
    [
        ("no_capacity", InsufficientCapacityError, ExhaustedScope.OFFERING),
        ("quota", InsufficientCapacityError, ExhaustedScope.REGION),
        ("bad_disk", LaunchFailedError, None),
    ],
)
async def test_a_late_failure_is_announced_with_its_error(example, tmp_path, code, error, scope):
    from karpenter_simulated_sample.cloud import SimulatedSampleCloud
    from karpenter_simulated_sample.testing import subject_of

    with SimulatedSampleCloud() as cloud, cloud.fail_late(code=code):
        subject = subject_of(cloud)
        async with rule_steps.new_world(subject, tmp_path) as world:
            outcome = await world.launch(await world.request("late", subject.node_class))
            (announced,) = await world.providers.poll_interruptions("sample")
    assert announced.provider_id == outcome.provider_id
    assert type(announced.error) is error
    assert getattr(announced.error, "scope", None) == scope


def test_the_provider_is_short():
    """The claim of the README: the modules of the provider have no more than 250 lines."""
    modules = (EXAMPLE / "karpenter_provider_sample").glob("*.py")
    assert sum(len(module.read_text().splitlines()) for module in modules) <= 250


def test_a_failing_simulated_route_answers_with_an_error(example):
    from karpenter_simulated_sample.cloud import SimulatedSampleCloud

    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.kit.calls.rest import RestClient

    with SimulatedSampleCloud() as cloud:
        cloud.images = None
        client = RestClient(cloud.endpoint_url, headers={}, timeout=timedelta(seconds=5))
        with pytest.raises(CloudProviderError, match=r"simulation-failed.*NoneType"):
            client.find("get image", "/v1/images/debian", dict[str, str])
