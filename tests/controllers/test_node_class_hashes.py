"""A provider computes the hash of each version of a NodeClass once."""

from __future__ import annotations

from karpenter_core.controllers.nodeclass.hashes import NodeClassHashes
from karpenter_core.provider.contract import NodeClassHash
from karpenter_provider_kwok.api import KWOKNodeClass


class CountingProviders:
    """Answers each call with another hash."""

    def __init__(self, *, has_hashes=True):
        self.calls = 0
        self.has_hashes = has_hashes

    async def hash_node_class(self, _node_class):
        self.calls += 1
        return NodeClassHash(value=str(self.calls), version="v1") if self.has_hashes else None


def version(number):
    metadata = {"name": "default", "resourceVersion": str(number)}
    return KWOKNodeClass.model_validate({"metadata": metadata, "spec": {}})


async def test_a_version_of_a_node_class_is_hashed_once():
    providers = CountingProviders()
    hashes = NodeClassHashes(providers)
    first, second = version(1), version(2)

    before = await hashes.annotations_of(first)
    assert await hashes.annotations_of(first) == before
    assert providers.calls == 1

    assert await hashes.annotations_of(second) != before
    assert providers.calls == 2


async def test_a_provider_without_hashes_is_asked_once_too():
    providers = CountingProviders(has_hashes=False)
    hashes = NodeClassHashes(providers)
    first = version(1)

    assert [await hashes.annotations_of(first) for _ in range(2)] == [{}, {}]
    assert providers.calls == 1
