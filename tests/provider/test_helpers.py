"""What the core ships so that no provider writes it again: adapters and rate limits."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.kit.token_bucket import TokenBucket
from karpenter_core.provider.markers import hookimpl
from tests.properties import with_examples

# -- one_by_one


def test_a_function_for_one_item_becomes_a_plural_hook():
    """A typed error is that item's outcome; anything else becomes one; the others go on."""

    @one_by_one
    def karpenter_terminate_instances(provider_id):
        match provider_id:
            case "full":
                raise InsufficientCapacityError("full")
            case "broken":
                raise KeyError("zone")
        return f"terminated {provider_id}"

    outcomes = karpenter_terminate_instances(provider_ids=["a", "full", "broken", "b"])
    assert (outcomes[0], outcomes[3]) == ("terminated a", "terminated b")
    assert isinstance(outcomes[1], InsufficientCapacityError)
    assert type(outcomes[2]) is CloudProviderError
    assert isinstance(outcomes[2].__cause__, KeyError)


async def test_an_async_function_runs_its_items_together():
    together = asyncio.Barrier(3)

    class Plugin:
        @hookimpl
        @one_by_one
        async def karpenter_launch_instances(self, request):
            await together.wait()
            if request == "bad":
                raise InsufficientCapacityError("bad")
            return request

    outcomes = await Plugin().karpenter_launch_instances(requests=["a", "bad", "b"])
    assert (outcomes[0], outcomes[2]) == ("a", "b")
    assert isinstance(outcomes[1], InsufficientCapacityError)


def test_other_arguments_are_passed_along():
    class Plugin:
        @hookimpl
        @one_by_one
        def karpenter_detect_drift(self, node_claim, node_class):
            return (node_claim, node_class)

    outcomes = Plugin().karpenter_detect_drift(node_claims=["a", "b"], node_class="web")
    assert outcomes == [("a", "web"), ("b", "web")]


def test_a_function_of_another_name_is_refused():
    with pytest.raises(TypeError, match="launch is not the name of a plural hook"):

        @one_by_one
        def launch(request):
            return request


def test_a_function_takes_those_arguments_that_it_names():
    @one_by_one
    def karpenter_detect_drift(node_class):
        return node_class

    assert karpenter_detect_drift(node_claims=["a", "b"], node_class="web") == ["web", "web"]


def test_a_mistyped_hook_for_one_item_is_refused_with_what_was_meant():
    with pytest.raises(TypeError, match='did you mean "karpenter_launch_instances"'):

        @one_by_one
        def karpenter_launch_instance(request):
            return request


def test_a_mistyped_argument_for_one_item_is_refused_with_what_was_meant():
    with pytest.raises(TypeError, match='has no argument "requests"; did you mean "request"'):

        @one_by_one
        def karpenter_launch_instances(requests):
            return requests


# -- token bucket


class Seconds:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate():
    clock = Seconds()
    bucket = TokenBucket(rate_per_second=2, burst=3, monotonic=clock)
    assert [bucket.reserve() for _ in range(5)] == [0, 0, 0, 0.5, 1.0]
    assert not bucket.try_take()
    clock.now = 2.0
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5)), max_size=50),
    st.floats(0.1, 50),
)
@with_examples(100)
def test_a_bucket_never_lets_more_through_than_burst_and_rate(steps, rate):
    """For every pattern of waits and takes."""
    clock = Seconds()
    bucket = TokenBucket(rate_per_second=rate, burst=5, monotonic=clock)
    taken = 0
    for wait, count in steps:
        clock.now += wait
        taken += count if bucket.try_take(count) else 0
        assert taken <= 5 + rate * clock.now + 1e-6


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (1, 0), (-1, 1)])
def test_a_bucket_that_gives_nothing_is_refused(rate, burst):
    with pytest.raises(ValueError, match="must be positive"):
        TokenBucket(rate_per_second=rate, burst=burst, monotonic=Seconds())


def test_more_than_the_bucket_holds_is_refused():
    bucket = TokenBucket(rate_per_second=1, burst=3, monotonic=Seconds())
    with pytest.raises(ValueError, match="4 tokens"):
        bucket.reserve(4)
