"""A claim without provider ID is looked up in its provider's listing before it is finished."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta

import pytest

from karpenter_core.controllers.nodeclaim.lookup import InstanceLookup
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import Instance, InstanceListing
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node_claim

WEB, API = node_claim("web"), node_claim("api")


def instance_of(claim):
    return Instance(provider_id=f"kwok://{claim.name}", token=claim.uid)


class Providers:
    """Lists instances; each listing takes ten seconds, and shows what is there at its start."""

    def __init__(self, *claims, problem="", error=None, as_of=None):
        self.as_of = as_of
        self.there = [instance_of(claim) for claim in claims]
        self.problem, self.error = problem, error
        self.listed = []

    def provider_of(self, ref):
        assert ref == WEB.spec.node_class_ref
        return "kwok"

    async def list_instances(self, provider):
        self.listed.append((provider, asyncio.get_running_loop().time()))
        shown, error = tuple(self.there), self.error
        await asyncio.sleep(10)
        if error is not None:
            raise error
        return InstanceListing(
            instances=shown,
            complete=not self.problem,
            problem=self.problem,
            as_of=self.as_of,
        )


def found(providers, *claims):
    """Look claims up, one a second; return what each look-up came to."""

    async def look(lookup, claim, at):
        await asyncio.sleep(at)
        return await lookup.provider_id(claim)

    async def story():
        lookup = InstanceLookup(providers)
        looks = [look(lookup, claim, number) for number, claim in enumerate(claims)]
        return await asyncio.gather(*looks, return_exceptions=True)

    return run_virtual(story())


def test_the_instance_of_a_claim_has_its_token():
    assert found(Providers(API, WEB), WEB) == ["kwok://web"]
    assert found(Providers(API), WEB) == [""]


def test_an_incomplete_listing_proves_only_the_listed_instances():
    (shown,) = found(Providers(WEB, problem="a page was lost"), WEB)
    (missing,) = found(Providers(API, problem="a page was lost"), WEB)

    assert shown == "kwok://web"
    assert isinstance(missing, CloudProviderError)
    assert str(missing) == "NodeClaim web may have an instance: a page was lost"


def test_look_ups_share_the_next_listing_but_not_a_started_one():
    """It may have passed the place where the instance is shown."""
    providers = Providers(WEB)
    assert found(providers, WEB, WEB, API, WEB) == ["kwok://web", "kwok://web", "", "kwok://web"]
    assert providers.listed == [("kwok", 0.0), ("kwok", 10.0)]


def test_a_listing_that_fails_fails_those_who_wait_for_it_and_no_later_ones():
    providers = Providers(WEB, error=CloudProviderError("nobody answers"))

    async def story():
        lookup = InstanceLookup(providers)
        looks = (lookup.provider_id(claim) for claim in (WEB, API))
        ended = await asyncio.gather(*looks, return_exceptions=True)
        providers.error = None
        return ended, await lookup.provider_id(WEB)

    ended, later = run_virtual(story())
    assert [str(error) for error in ended] == ["nobody answers"] * 2
    assert later == "kwok://web"
    assert len(providers.listed) == 2


def test_a_look_up_that_is_cancelled_ends_no_other():
    providers = Providers(WEB)

    async def story():
        lookup = InstanceLookup(providers)
        first, second = (asyncio.create_task(lookup.provider_id(WEB)) for _ in range(2))
        await asyncio.sleep(5)
        first.cancel()
        return await second

    assert run_virtual(story()) == "kwok://web"


@pytest.mark.parametrize("cancelled_after", [0, 5])
def test_a_listing_whose_look_ups_were_all_cancelled_is_not_waited_for_later(cancelled_after):
    providers = Providers(WEB)

    async def story():
        lookup = InstanceLookup(providers)
        first = asyncio.create_task(lookup.provider_id(WEB))
        await asyncio.sleep(cancelled_after)
        first.cancel()
        await asyncio.sleep(20)
        providers.there = [instance_of(API)]
        return await lookup.provider_id(API)

    assert run_virtual(story()) == "kwok://api"


@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_listing_from_before_the_deletion_does_not_show_that_there_is_no_instance(seconds):
    """Nothing is launched for a deleted claim: a later listing shows all that was."""
    deleted = node_claim("web", deleted=EPOCH)
    providers = Providers(as_of=EPOCH + timedelta(seconds=seconds))

    (result,) = found(providers, deleted)

    if seconds > 0:
        assert result == ""
    else:
        assert isinstance(result, CloudProviderError)
        assert "NodeClaim web may have an instance" in str(result)


def test_a_listing_that_fails_after_its_look_ups_were_cancelled_is_not_reported_by_asyncio():
    """As at the end of the process: the provider has stopped, and nobody wants the listing."""
    providers = Providers(WEB, error=CloudProviderError("the provider has stopped"))
    reported = []

    async def story():
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, found: reported.append(found)
        )
        look_up = asyncio.create_task(InstanceLookup(providers).provider_id(WEB))
        await asyncio.sleep(5)
        look_up.cancel()
        await asyncio.sleep(20)
        gc.collect()

    run_virtual(story())
    assert len(providers.listed) == 1
    assert reported == []
