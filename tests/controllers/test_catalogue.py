"""A bad catalogue is reported on its NodePool and harms no other pool."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.controllers.catalogue.controller import STALE_AFTER, CatalogueController
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics import Metrics
from karpenter_core.controllers.reconciler import ControllerRuntime
from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_core.provider.markers import hookimpl
from karpenter_core.testing import builders
from karpenter_core.testing.builders import instance_type, offering
from karpenter_core.testing.harness import SequentialIds
from karpenter_core.testing.state_builders import KWOK, ready_node_pool, synced_state
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.clocks import TwoClocks
from tests.controllers.scenes import NODE_CLASS, deployment, node_pool, play
from tests.provider.fakes import FakeProvider

WEB_CLASS = {
    "apiVersion": "web.example.com/v1",
    "kind": "WebNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}
WEB_POOL = node_pool(
    "web",
    template={
        "nodeClassRef": {"group": "web.example.com", "kind": "WebNodeClass", "name": "default"}
    },
)


class Selling(FakeProvider):
    """A provider of one type."""

    def __init__(self, it):
        super().__init__()
        self.it = it

    @hookimpl
    def karpenter_list_instance_types(self):
        return [self.it]


class Refusing(FakeProvider):
    """A provider that finds a mistake of the user while it lists."""

    @hookimpl
    def karpenter_list_instance_types(self):
        raise BadInputError('WebNodeClass "default": spec.family must not be "x"')


def priced(amount):
    return instance_type("small", offerings=[offering(price=amount)])


def listing_of(scene, name):
    """The condition InstanceTypesListed of a pool; None where there is none."""
    conditions = scene.pool(name).get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "InstanceTypesListed"), None)


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (Selling(priced(-0.01)), ('plug-in "web"', '"small"', "price.amount", "-0.01")),
        (Selling(priced("0.0060")), ('plug-in "web"', '"small"', "price.amount", "'0.0060'")),
        (Selling(priced(float("nan"))), ('plug-in "web"', '"small"', "price.amount", "nan")),
        (
            Selling(replace(priced(1.0), capacity={"cpu": "4", "memory": 2**34, "pods": 110})),
            ('plug-in "web"', '"small"', "capacity.cpu", "'4'"),
        ),
        (Refusing(), ('WebNodeClass "default"', "spec.family", '"x"')),
    ],
    ids=["negative", "text", "nan", "capacity", "refusal"],
)
def test_a_bad_catalogue_stops_its_own_pool_only(tmp_path, plugin, words):
    """The other provider's pods get their nodes, and the pool names what to mend."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), WEB_CLASS, WEB_POOL])
        scene.start("--disable-leader-election")
        scene.cluster.apply([deployment("web", 2)])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        await scene.settle(lambda: listing_of(scene, "web"), seconds=60)

        condition = listing_of(scene, "web")
        assert (condition["status"], condition["reason"]) == ("False", "ListingFailed")
        for word in words:
            assert word in condition["message"]
        assert listing_of(scene, "general") is None
        assert plugin.launches == []

    play(tmp_path, scenario, plugins={"web": plugin})


def comparable(scene, name):
    """The condition PricesComparable of a pool; None where there is none."""
    conditions = scene.pool(name).get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "PricesComparable"), None)


@pytest.mark.parametrize(
    ("arguments", "is_told"),
    [([], True), (["--exchange-rates=EUR=1.1"], False), (["--currency=EUR"], False)],
)
def test_a_pool_priced_without_an_exchange_rate_says_so(tmp_path, arguments, is_told):
    """Its nodes would lose their savings in silence."""
    euro = instance_type("small", offerings=[offering(price=0.1, currency="EUR")])

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), WEB_CLASS, WEB_POOL])
        scene.start("--disable-leader-election", *arguments)
        await scene.cluster.clock.sleep(30)

        condition = comparable(scene, "web")
        assert (condition is not None) == is_told
        if condition is not None:
            assert (condition["status"], condition["reason"]) == ("False", "NoExchangeRate")
            assert "no exchange rate from EUR to USD" in condition["message"]
            assert "--exchange-rates" in condition["message"]
            assert comparable(scene, "general") is None

    play(tmp_path, scenario, plugins={"web": Selling(euro)})


class FailingListing:
    """A provider whose listing a test makes fail."""

    fails = False

    async def list_instance_types(self, _pool, _node_class):
        if self.fails:
            raise CloudProviderError("nobody answers")
        return (priced(1.0),)


@pytest.mark.parametrize("hours", [6, 0, -6])
async def test_the_last_listing_is_kept_for_a_while_across_wall_clock_jumps(hours):
    """Neither dropped at the first failure, nor kept for hours."""
    clock, providers, metrics = TwoClocks(), FailingListing(), Metrics()
    node_class = KWOKNodeClass(metadata=ObjectMeta(name=KWOK.name, uid="uid-class"))
    pool = ready_node_pool(builders.node_pool("general", node_class_ref=KWOK))
    cluster_state = ClusterState(synced_state(pool, node_class, catalogues={}), clock)
    runtime = ControllerRuntime(clock=clock, new_id=SequentialIds("id"), metrics=metrics)
    controller = CatalogueController(
        cluster_state=cluster_state, providers=providers, runtime=runtime
    )
    key = (KWOK.group, KWOK.kind, KWOK.name)
    await controller.reconcile(key)
    assert "general" in cluster_state.snapshot().catalogues
    providers.fails = True
    clock.is_set(hours=hours)

    async def fails_after(wait):
        clock.passes(wait.total_seconds())
        with pytest.raises(CloudProviderError):
            await controller.reconcile(key)

    await fails_after(STALE_AFTER - timedelta(seconds=1))
    assert "general" in cluster_state.snapshot().catalogues
    await fails_after(timedelta(seconds=1))
    assert "general" not in cluster_state.snapshot().catalogues
