"""Listings that are shared for some seconds."""

from __future__ import annotations

from threading import Thread

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.instances.cluster_vms import VmListing


@pytest.fixture
def listing(world):
    return VmListing(world.clock, world.reader.of_cluster)


def test_a_recent_listing_is_used_again(world, listing):
    world.add_vm()
    first = listing.recent()
    world.clock.forward(seconds=5)
    assert listing.recent() is first
    assert first.as_of is not None
    world.clock.forward(seconds=1)
    assert listing.recent().as_of == world.clock.now()
    assert len(world.azure.calls) == 2


def test_threads_share_a_listing(world, listing):
    threads = [Thread(target=listing.recent) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.azure.calls) == 1


def test_a_failed_listing_is_not_replaced_by_an_old_one(world, listing):
    listing.recent()
    world.clock.forward(seconds=6)
    world.azure.errors["LIST", "virtualmachines"] = CloudProviderError("no answer")
    for _ in range(2):
        with pytest.raises(CloudProviderError):
            listing.recent()
    world.azure.errors.clear()
    assert listing.recent().as_of == world.clock.now()
