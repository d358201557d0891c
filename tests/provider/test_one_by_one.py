"""Functions for one item become plural hooks."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.markers import hookimpl


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


def test_a_mistyped_hook_for_one_item_is_refused_with_the_likely_name():
    with pytest.raises(TypeError, match='did you mean "karpenter_launch_instances"'):

        @one_by_one
        def karpenter_launch_instance(request):
            return request


def test_a_mistyped_argument_for_one_item_is_refused_with_the_likely_name():
    with pytest.raises(TypeError, match='has no argument "requests"; did you mean "request"'):

        @one_by_one
        def karpenter_launch_instances(requests):
            return requests
