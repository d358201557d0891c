"""A bad catalogue is reported on its NodePool and harms no other pool."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.controllers.catalogue.controller import (
    STALE_AFTER,
    CatalogueController,
    catalogue_version,
)
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.provider.contract import PollingPeriods
from karpenter_core.provider.markers import hookimpl
from karpenter_core.state.events import ObjectObserved, ObjectRemoved
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.testing import builders
from karpenter_core.testing.builders import instance_type, offering
from karpenter_core.testing.state_builders import KWOK, ready_node_pool, synced_state
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.clocks import TwoClocks
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
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

    run_controller(tmp_path, scenario, plugins={"web": plugin})


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

    run_controller(tmp_path, scenario, plugins={"web": Selling(euro)})


KEY = (KWOK.group, KWOK.kind, KWOK.name)


class FailingListing:
    """A provider whose listing a test changes and makes fail."""

    fails = False
    listed = (priced(1.0),)

    def provider_of(self, _ref):
        return "kwok"

    def polling_periods(self, _provider):
        return PollingPeriods(catalogue=timedelta(minutes=1))

    async def list_instance_types(self, _pool, _node_class):
        if self.fails:
            raise CloudProviderError("nobody answers")
        return self.listed


class Upkeep:
    """The controller over the state of a NodeClass and its pools, called by hand."""

    def __init__(self, *pools):
        self.clock, self.providers, self.metrics = TwoClocks(), FailingListing(), Metrics()
        self.node_class = KWOKNodeClass(metadata=ObjectMeta(name=KWOK.name, uid="uid-class"))
        self.pools = [
            ready_node_pool(builders.node_pool(name, node_class_ref=KWOK)) for name in pools
        ]
        builder = synced_state(*self.pools, self.node_class, catalogues={})
        self.state = ClusterState(builder, self.clock)
        self.controller = CatalogueController(
            cluster_state=self.state,
            providers=self.providers,
            runtime=ControllerRuntime(
                clock=self.clock, new_id=SequentialIds("id"), metrics=self.metrics
            ),
        )
        self.published, self.problems = [], []
        self.state.subscribe(ObjectKind.CATALOGUE, self.published.append)
        self.controller.subscribe_problems(self.problems.append)

    async def reconcile(self):
        return await self.controller.reconcile(KEY)

    async def fail(self):
        self.providers.fails = True
        with pytest.raises(CloudProviderError):
            await self.reconcile()

    def names(self):
        """The types that each pool has been told of."""
        return {
            pool: [it.name for it in catalogue.instance_types]
            for pool, catalogue in self.state.snapshot().catalogues.items()
        }

    def metric(self, name):
        return self.metrics.registry.get_sample_value(name, {"nodepool": "general"})


async def test_all_pools_of_a_node_class_get_its_types_and_the_next_refresh_is_planned():
    upkeep = Upkeep("general", "web")
    upkeep.clock.passes(7)
    outcome = await upkeep.reconcile()

    assert outcome.requeue_after == 60
    assert upkeep.names() == {"general": ["small"], "web": ["small"]}
    told = upkeep.metric("karpenter_catalogue_refresh_timestamp_seconds")
    assert told == upkeep.clock.now().timestamp()


@pytest.mark.parametrize(
    "listed", [(priced(1.0),), FailingListing.listed], ids=["equal", "identical"]
)
async def test_a_listing_that_brought_nothing_new_is_not_published(listed):
    """Or every pass would begin from the start."""
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    assert upkeep.published == ["general"]
    upkeep.providers.listed = listed
    await upkeep.reconcile()
    assert upkeep.published == ["general"]


async def test_a_failed_refresh_does_not_count_as_a_refresh():
    """The time is that of the types in use, and stays when they are withdrawn."""
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    refreshed = upkeep.clock.now().timestamp()
    upkeep.clock.passes(60)
    await upkeep.fail()
    assert upkeep.metric("karpenter_catalogue_refresh_timestamp_seconds") == refreshed
    upkeep.clock.passes(STALE_AFTER.total_seconds())
    await upkeep.fail()

    assert upkeep.names() == {}
    assert upkeep.metric("karpenter_catalogue_refresh_timestamp_seconds") == refreshed


async def test_the_refresh_time_is_dropped_with_its_pool():
    """Or an alert about it would never end."""
    upkeep = Upkeep("general", "web")
    await upkeep.reconcile()
    upkeep.state.fold(ObjectRemoved(upkeep.pools[0]))
    await upkeep.reconcile()

    assert upkeep.metric("karpenter_catalogue_refresh_timestamp_seconds") is None


async def test_the_refresh_time_is_dropped_with_its_node_class():
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    upkeep.state.fold(ObjectRemoved(upkeep.node_class))
    await upkeep.reconcile()

    assert upkeep.metric("karpenter_catalogue_refresh_timestamp_seconds") is None


async def test_a_listing_with_other_prices_is_published():
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    upkeep.providers.listed = (priced(2.0),)
    await upkeep.reconcile()

    (catalogue,) = upkeep.state.snapshot().catalogues.values()
    assert catalogue.instance_types[0].offerings[0].price.amount == 2.0
    assert upkeep.published == ["general", "general"]


async def test_a_pool_that_is_made_anew_gets_the_catalogue_of_its_namesake():
    """The state drops a catalogue with its pool."""
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    upkeep.state.fold(ObjectRemoved(upkeep.pools[0]))
    assert upkeep.names() == {}
    metadata = upkeep.pools[0].metadata.model_copy(update={"uid": "uid-again"})
    upkeep.state.fold(ObjectObserved(upkeep.pools[0].model_copy(update={"metadata": metadata})))
    await upkeep.reconcile()

    assert upkeep.names() == {"general": ["small"]}


async def test_without_its_node_class_a_pool_has_no_catalogue():
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    upkeep.state.fold(ObjectRemoved(upkeep.node_class))
    outcome = await upkeep.reconcile()

    assert outcome.requeue_after is None
    assert upkeep.names() == {}
    assert upkeep.controller.currencies_of(upkeep.pools[0]) == frozenset()


async def test_pools_without_a_first_listing_are_named_until_it_ends():
    """Passes wait for them, but not for one whose listing fails."""
    listed, failing = Upkeep("general"), Upkeep("general")
    assert listed.controller.unlisted_pools() == ("general",)
    await listed.reconcile()
    await failing.fail()

    assert listed.controller.unlisted_pools() == ()
    assert failing.controller.unlisted_pools() == ()


async def test_a_pool_whose_node_class_is_missing_is_not_waited_for():
    upkeep = Upkeep("general")
    upkeep.state.fold(ObjectRemoved(upkeep.node_class))
    assert upkeep.controller.unlisted_pools() == ()


async def test_listeners_hear_when_a_listing_fails_and_when_it_works_again():
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    assert upkeep.problems == []
    await upkeep.fail()
    assert upkeep.problems == ["general"]
    assert upkeep.controller.problem_of(upkeep.pools[0]) == "nobody answers"
    assert upkeep.metric("karpenter_catalogue_refresh_errors_total") == 1
    assert upkeep.names() == {"general": ["small"]}, "the last one stays in use"
    upkeep.providers.fails = False
    await upkeep.reconcile()

    assert upkeep.problems == ["general", "general"]
    assert upkeep.controller.problem_of(upkeep.pools[0]) == ""


class TestVersion:
    """A catalogue's version differs with everything that plans depend on."""

    BASE = instance_type("small", offerings=[offering("zone-a", price=0.5)])
    OFFER = BASE.offerings[0]

    def offered(self, **changes):
        return replace(self.BASE, offerings=(replace(self.OFFER, **changes),))

    def test_it_is_the_same_for_the_same_types_in_any_order(self):
        other = replace(self.BASE, name="other")
        again = instance_type("small", offerings=[offering("zone-a", price=0.5)])
        version = catalogue_version([self.BASE, other])
        assert version == catalogue_version([other, again])

    def test_each_part_is_in_it(self):
        overhead = replace(self.BASE.overhead, kube_reserved={"cpu": 77})
        changed = [
            self.BASE,
            replace(self.BASE, name="other"),
            replace(self.BASE, capacity={**self.BASE.capacity, "cpu": 1}),
            replace(self.BASE, overhead=overhead),
            instance_type("small", arch="arm64", offerings=[self.OFFER]),
            replace(self.BASE, offerings=()),
            replace(self.BASE, offerings=(offering("zone-b", price=0.5),)),
            self.offered(price=replace(self.OFFER.price, amount=0.6)),
            self.offered(price=replace(self.OFFER.price, currency="EUR")),
            self.offered(available=False),
            self.offered(reservation_capacity=3),
            self.offered(capacity_override={"cpu": 1}),
            self.offered(overhead_override={"cpu": 1}),
            self.offered(interruption_risk=0.25),
        ]
        assert len({catalogue_version([each]) for each in changed}) == len(changed)


@pytest.mark.parametrize("hours", [6, 0, -6])
async def test_the_last_listing_is_kept_for_a_while_across_wall_clock_jumps(hours):
    """Neither dropped at the first failure, nor kept for hours."""
    upkeep = Upkeep("general")
    await upkeep.reconcile()
    assert "general" in upkeep.names()
    upkeep.clock.is_set(hours=hours)

    async def fails_after(wait):
        upkeep.clock.passes(wait.total_seconds())
        await upkeep.fail()

    await fails_after(STALE_AFTER - timedelta(seconds=1))
    assert "general" in upkeep.names()
    await fails_after(timedelta(seconds=1))
    assert "general" not in upkeep.names()
