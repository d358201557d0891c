"""The facade calls the right provider with typed arguments and converts errors."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import structlog

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.api.prices import Price
from karpenter_core.api.records import NodeView
from karpenter_core.errors import (
    BadInputError,
    CallPendingError,
    CloudProviderError,
    FencedError,
    InsufficientCapacityError,
    NodeClaimNotFoundError,
    PluginError,
)
from karpenter_core.provider.contract import (
    BatchLimits,
    DriftFinding,
    Finding,
    Instance,
    InstanceListing,
    Interruption,
    InterruptionKind,
    LabelClasses,
    LaunchedInstance,
    NodeClassResolution,
    PeriodicTask,
    Severity,
    TerminationStatus,
)
from karpenter_core.provider.host.executor import InlineExecutor, ThreadExecutor
from karpenter_core.provider.host.facade import Providers
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.provider_world import ProviderWorld
from tests.provider.fakes import DataNodeClass, FakeProvider, launched, node_class

WEB = NodeClassRef(group="web.example.com", kind="WebNodeClass", name="default")
NODE = NodeView(uid="uid-node", name="node")


@pytest.fixture
def virtual(tmp_path):
    """Run a scenario with these plug-ins in virtual time."""

    def run(scenario, **plugins):
        async def main():
            world = ProviderWorld(
                plugins=plugins,
                cache_folder=tmp_path,
                clock=LoopClock(),
                executor=InlineExecutor(),
            )
            async with world:
                await scenario(world)

        run_virtual(main())

    return run


def sample(world, name, **labels):
    return world.registry.get_sample_value(name, labels)


# -- dispatch


def test_each_claim_is_launched_by_the_owner_of_its_class(virtual):
    """Two providers in one process, one NodePool each."""
    web, data = FakeProvider(), FakeProvider("data", DataNodeClass)

    async def scenario(world):
        requests = [
            await world.request("web-1", node_class()),
            await world.request("data-1", node_class(DataNodeClass)),
        ]
        outcomes = await asyncio.gather(*(world.launch(request) for request in requests))
        assert [outcome.provider_id for outcome in outcomes] == ["fake://web-1", "fake://data-1"]
        assert (web.launches, data.launches) == ([["web-1"]], [["data-1"]])
        assert world.providers.managed_kinds() == {
            ("web.example.com", "WebNodeClass"),
            ("data.example.com", "DataNodeClass"),
        }

    virtual(scenario, web=web, data=data)


def test_a_class_without_a_provider_is_refused_by_name(virtual):
    async def scenario(world):
        ref = NodeClassRef(group="x.example.com", kind="XNodeClass", name="default")
        with pytest.raises(PluginError, match=r"XNodeClass\.x\.example\.com"):
            await world.providers.fetch(ref, "x://1")

    virtual(scenario, web=FakeProvider())


def test_a_thousand_launches_are_ten_calls(virtual):
    web = FakeProvider()

    async def scenario(world):
        first = await world.request("web-0", node_class())
        requests = [first] + [await world.request(f"web-{n}", node_class()) for n in range(1, 1000)]
        outcomes = await asyncio.gather(*(world.providers.launch(r) for r in requests))
        assert [o.provider_id for o in outcomes] == [f"fake://web-{n}" for n in range(1000)]
        assert [len(names) for names in web.launches] == [100] * 10

    virtual(scenario, web=web)


def test_launches_of_two_classes_never_share_a_call(virtual):
    web = FakeProvider()

    async def scenario(world):
        requests = [
            await world.request(f"{name}-{n}", node_class(name=name))
            for name in ("gpu", "cpu")
            for n in range(2)
        ]
        await asyncio.gather(*(world.launch(request) for request in requests))
        assert sorted(web.launches) == [["cpu-0", "cpu-1"], ["gpu-0", "gpu-1"]]

    virtual(scenario, web=web)


# -- outcomes and errors


def test_errors_are_outcomes_of_their_own_items(virtual):
    web = FakeProvider()
    web.answer = lambda requests: [
        InsufficientCapacityError("none left") if "bad" in r.node_claim.name else launched(r)
        for r in requests
    ]

    async def scenario(world):
        requests = [await world.request(name, node_class()) for name in ("good", "bad")]
        good, bad = await asyncio.gather(*(world.launch(request) for request in requests))
        assert isinstance(good, LaunchedInstance)
        assert isinstance(bad, InsufficientCapacityError)
        errors = "karpenter_cloudprovider_errors_total"
        labels = {"controller": "", "method": "Create", "provider": "web"}
        assert sample(world, errors, **labels, error="InsufficientCapacityError") == 1
        count = "karpenter_cloudprovider_duration_seconds_count"
        assert sample(world, count, **labels) == 2

    virtual(scenario, web=web)


def test_metrics_name_the_calling_controller(virtual):
    async def scenario(world):
        with structlog.contextvars.bound_contextvars(controller="nodeclaim.lifecycle"):
            await world.providers.fetch(WEB, "fake://gone")
        labels = {"controller": "nodeclaim.lifecycle", "method": "Get", "provider": "web"}
        errors = "karpenter_cloudprovider_errors_total"
        assert sample(world, errors, **labels, error="NodeClaimNotFoundError") == 1

    virtual(scenario, web=FakeProvider())


def _raise(error):
    raise error


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: _raise(KeyError("zone")), "failed in karpenter_launch_instances: KeyError"),
        (lambda _: _raise(SystemExit(3)), "failed in karpenter_launch_instances: SystemExit"),
        (lambda _: [], "returned 0 outcomes for 1 items"),
        (lambda _: None, "must return a list, not None"),
        (lambda _: ["i-123"], "must return LaunchedInstance or CloudProviderError"),
    ],
)
def test_a_misbehaving_plugin_is_an_error_that_names_it(virtual, answer, words):
    web = FakeProvider()
    web.answer = answer

    async def scenario(world):
        outcome = await world.launch(await world.request("web-1", node_class()))
        assert type(outcome) is CloudProviderError
        assert 'plug-in "web"' in str(outcome)
        assert words in str(outcome)

    virtual(scenario, web=web)


def test_an_async_hook_is_awaited(virtual):
    web = FakeProvider()

    async def answer(requests):
        await asyncio.sleep(3)
        return [launched(request) for request in requests]

    web.answer = answer

    async def scenario(world):
        outcome = await world.launch(await world.request("web-1", node_class()))
        assert isinstance(outcome, LaunchedInstance)

    virtual(scenario, web=web)


async def test_hooks_run_in_threads_and_not_on_the_loop(tmp_path):
    import threading

    web, seen = FakeProvider(), []

    def answer(requests):
        seen.append(threading.current_thread() is threading.main_thread())
        return [launched(request) for request in requests]

    web.answer = answer
    world = ProviderWorld(
        plugins={"web": web}, cache_folder=tmp_path, clock=LoopClock(), executor=ThreadExecutor()
    )
    async with world:
        await world.launch(await world.request("web-1", node_class()))
    assert seen == [False]


# -- time limits


def test_a_late_launch_is_reported_and_not_repeated(virtual):
    """A claim whose call is open is not launched again; its result is folded in when it comes."""
    web = FakeProvider()

    async def answer(requests):
        await asyncio.sleep(600)
        return [launched(request) for request in requests]

    web.answer = answer

    async def scenario(world):
        late = []
        world.providers.subscribe_late_launches(lambda r, o: late.append((r.token, o.provider_id)))
        request = await world.request("web-1", node_class())
        for _ in range(3):
            assert isinstance(await world.launch(request), CallPendingError)
        assert web.launches == [["web-1"]]
        assert (world.providers.overdue_calls(), world.providers.open_launches()) == (1, 1)
        assert sample(world, "karpenter_cloudprovider_overdue_calls", provider="web") == 1
        await asyncio.sleep(600)
        assert late == [("uid-of-web-1", "fake://web-1")]
        assert (world.providers.overdue_calls(), world.providers.open_launches()) == (0, 0)

    virtual(scenario, web=web)


class Listing(FakeProvider):
    calls = 0

    @hookimpl
    async def karpenter_list_instances(self):
        self.calls += 1
        await asyncio.sleep(100)
        return super().karpenter_list_instances()


def test_a_hanging_listing_is_requested_once(virtual):
    web = Listing(batch_limits={"karpenter_list_instances": BatchLimits(timeout=timedelta(10))})
    stuck = Listing(
        batch_limits={"karpenter_list_instances": BatchLimits(timeout=timedelta(seconds=10))}
    )

    async def shared(world):
        await asyncio.gather(*(world.providers.list_instances("web") for _ in range(3)))
        assert web.calls == 1

    async def overdue(world):
        for _ in range(3):
            with pytest.raises(CallPendingError):
                await world.providers.list_instances("web")
        assert stuck.calls == 1

    virtual(shared, web=web)
    virtual(overdue, web=stuck)


# -- fence


def test_nothing_is_launched_or_terminated_without_the_lease(virtual):
    web = FakeProvider()

    async def scenario(world):
        request = await world.request("web-1", node_class())
        world.fence.held = False
        with pytest.raises(FencedError):
            await world.launch(request)
        with pytest.raises(FencedError):
            await world.providers.terminate(WEB, "fake://web-1")
        assert (web.launches, web.terminations) == ([], [])
        assert isinstance(await world.providers.fetch(WEB, "fake://web-1"), Instance)
        world.fence.held = True
        assert isinstance(await world.launch(request), LaunchedInstance)

    virtual(scenario, web=web)


@pytest.mark.parametrize("observing", [True, False])
@pytest.mark.parametrize("observes", [True, False])
def test_an_observer_resolves_with_providers_that_ask_the_fence_themselves(
    virtual, observing, observes
):
    """A process that may lead does not, and nobody launches."""
    web, resolved = FakeProvider(observes=observes), []

    @hookimpl
    def resolve(node_class):
        resolved.append(node_class.name)
        return NodeClassResolution()

    web.karpenter_resolve_node_class = resolve

    async def scenario(world):
        request = await world.request("web-1", node_class())
        resolved.clear()
        world.providers._dispatcher._observing = observing
        world.fence.held = False
        if observing and observes:
            await world.providers.resolve_node_class(node_class())
        else:
            with pytest.raises(FencedError):
                await world.providers.resolve_node_class(node_class())
        assert bool(resolved) is (observing and observes)
        with pytest.raises(FencedError):
            await world.launch(request)
        assert web.launches == []

    virtual(scenario, web=web)


def test_the_lease_is_checked_when_a_batch_is_sent(virtual):
    """A process that was stopped in between (SIGSTOP) sends nothing when it wakes."""
    web = FakeProvider()

    async def scenario(world):
        request = await world.request("web-1", node_class())
        waiting = asyncio.ensure_future(world.launch(request))
        await asyncio.sleep(0.01)
        world.fence.held = False
        with pytest.raises(FencedError):
            await waiting
        assert web.launches == []

    virtual(scenario, web=web)


@pytest.mark.parametrize("chunk", ["resolve", "finalize", "sync", "acknowledge", "task"])
def test_nothing_that_may_change_a_cloud_runs_without_the_lease(virtual, chunk):
    """Calls that waited for a thread when the lease was lost; with the lease all of them run."""
    web, calls = FakeProvider(), []

    @hookimpl
    def resolve(node_class):
        calls.append("resolve")
        return NodeClassResolution()

    @hookimpl
    def declare_tasks():
        return [
            PeriodicTask(name="sweep", period=timedelta(hours=1), run=lambda: calls.append("task")),
        ]

    web.karpenter_resolve_node_class = resolve
    web.karpenter_finalize_node_class = hookimpl(lambda node_class: calls.append("finalize"))
    web.karpenter_sync_instance = hookimpl(lambda node_claim, node: calls.append("sync"))
    web.karpenter_acknowledge_interruptions = hookimpl(lambda ids: calls.append("acknowledge"))
    web.karpenter_declare_tasks = declare_tasks

    async def scenario(world):
        providers, request = world.providers, await world.request("web-1", node_class())
        calls.clear()
        (task,) = providers.tasks()
        calling = {
            "resolve": lambda: providers.resolve_node_class(node_class()),
            "finalize": lambda: providers.finalize_node_class(node_class()),
            "sync": lambda: providers.sync_instance(request.node_claim, NODE),
            "acknowledge": lambda: providers.acknowledge_interruptions("web", ["1"]),
            "task": task.run,
        }[chunk]
        world.fence.held = False
        with pytest.raises(FencedError):
            await calling()
        assert calls == []

        world.fence.held = True
        await calling()
        assert calls == [chunk]

    virtual(scenario, web=web)


def test_a_task_of_every_process_runs_without_the_lease(virtual):
    """It changes nothing: standbys keep their catalogues warm."""
    web, calls = FakeProvider(), []

    @hookimpl
    def declare_tasks():
        period = timedelta(hours=1)
        run = partial(calls.append, "prices")
        return [PeriodicTask(name="prices", period=period, run=run, leader_only=False)]

    web.karpenter_declare_tasks = declare_tasks

    async def scenario(world):
        world.fence.held = False
        (task,) = world.providers.tasks()
        await task.run()
        assert calls == ["prices"]

    virtual(scenario, web=web)


def test_a_plugin_can_check_the_lease_between_its_changes(virtual):
    """The context of a plug-in has the fence."""

    async def scenario(world):
        fence = world.context_for("web").fence
        fence.check()
        world.fence.held = False
        with pytest.raises(FencedError):
            fence.check()

    virtual(scenario, web=FakeProvider())


# -- defaults


def test_hooks_that_are_not_implemented_have_their_defaults(virtual):
    async def scenario(world):
        providers = world.providers
        request = await world.request("web-1", node_class())
        claim = request.node_claim
        assert await providers.resolve_node_class(node_class()) == NodeClassResolution()
        assert await providers.hash_node_class(node_class()) is None
        await providers.finalize_node_class(node_class())
        assert await providers.gate_registration(claim, NODE) is None
        await providers.sync_instance(claim, NODE)
        assert await providers.detect_drift([claim, claim], node_class()) == (None, None)
        assert await providers.poll_interruptions("web") == ()
        await providers.acknowledge_interruptions("web", ["a"])
        assert await providers.read_interruptions(WEB, NODE) == ()
        assert await providers.check() == {}
        assert await providers.vetoes(None) == {}
        assert providers.label_classes() == LabelClasses()
        assert providers.tasks() == ()
        assert providers.infos()["web"].repair_policies == ()

    virtual(scenario, web=FakeProvider())


class AllHooks(FakeProvider):
    """Implements the optional hooks."""

    started = stopped = False
    runs = 0

    @hookimpl
    def karpenter_start(self, context):
        self.started, self.context = True, context

    @hookimpl
    def karpenter_stop(self):
        self.stopped = True

    @hookimpl
    def karpenter_classify_labels(self):
        return LabelClasses(well_known=frozenset({"web.example.com/size"}))

    @hookimpl
    def karpenter_detect_drift(self, node_claims):
        return [DriftFinding(reason="ImageDrift"), NodeClaimNotFoundError("gone"), None]

    @hookimpl
    def karpenter_poll_interruptions(self):
        return [
            Interruption(id="1", kind=InterruptionKind.SPOT_RECLAIM, provider_id="fake://web-1")
        ]

    @hookimpl
    def karpenter_declare_tasks(self):
        def run():
            self.runs += 1

        return [PeriodicTask(name="prices", period=timedelta(hours=1), run=run)]

    @hookimpl
    def karpenter_check(self):
        raise OSError("no route to host")

    @hookimpl
    def karpenter_veto_candidate(self, candidate):
        return "batch job" if candidate == "busy" else None


def test_optional_hooks_are_called(virtual):
    web = AllHooks()

    async def scenario(world):
        assert web.started
        claim = (await world.request("web-1", node_class())).node_claim
        drift = await world.providers.detect_drift([claim] * 3, node_class())
        assert drift[0] == DriftFinding(reason="ImageDrift")
        assert isinstance(drift[1], NodeClaimNotFoundError)
        assert drift[2] is None
        assert [i.id for i in await world.providers.poll_interruptions("web")] == ["1"]
        assert world.providers.label_classes().well_known == {"web.example.com/size"}
        assert await world.providers.vetoes("busy") == {"web": "batch job"}
        assert await world.providers.vetoes("idle") == {}
        await world.run_task("web", "prices")
        assert web.runs == 1

    virtual(scenario, web=web)
    assert web.stopped


def test_a_check_that_fails_is_a_finding(virtual):
    async def scenario(world):
        (finding,) = (await world.providers.check())["web"]
        assert isinstance(finding, Finding)
        assert finding.severity is Severity.ERROR
        assert "no route to host" in finding.message

    virtual(scenario, web=AllHooks())


# -- start


class Unstartable(AllHooks):
    error: Exception = RuntimeError("socket")

    @hookimpl
    def karpenter_start(self, context):
        raise self.error


def test_a_plugin_that_cannot_start_stops_those_that_did(virtual):
    data = AllHooks("data", DataNodeClass)

    async def scenario(world):
        pytest.fail("started")

    with pytest.raises(PluginError, match=r'plug-in "web" .* could not start: .*socket'):
        virtual(scenario, data=data, web=Unstartable())
    assert data.stopped


def test_a_provider_that_cannot_start_is_skipped_if_not_all_are_needed(tmp_path):
    """Requests for its kinds get the reason; the others serve."""
    data = AllHooks("data", DataNodeClass)

    async def main():
        world = ProviderWorld(
            plugins={"data": data, "web": Unstartable()},
            cache_folder=tmp_path,
            clock=LoopClock(),
            executor=InlineExecutor(),
        )
        world.loaded = load_plugins(extra=world.plugins, entry_points=())
        providers = Providers(
            world.loaded,
            executor=world.executor,
            clock=world.clock,
            fence=world.fence,
            registry=world.registry,
        )
        await providers.start(world.context_for, all_needed=False)
        assert list(providers.left_out) == ["web"]
        assert "web" not in await providers.check()
        with pytest.raises(PluginError, match=r'provider "web" could not start: .*socket'):
            providers.provider_of(WEB)
        with pytest.raises(PluginError, match=r'provider "web" could not start: .*socket'):
            await providers.resolve_node_class(node_class())
        assert (
            providers.provider_of(
                WEB.model_copy(update={"group": "data.example.com", "kind": "DataNodeClass"})
            )
            == "data"
        )
        await providers.stop()

    run_virtual(main())
    assert data.stopped


def test_a_user_error_passes_through_unchanged(virtual):
    web = Unstartable()
    web.error = BadInputError("instance types file x: entry 3: Price: must be a number")

    async def scenario(world):
        pytest.fail("started")

    with pytest.raises(BadInputError, match=r"^instance types file x: entry 3: Price"):
        virtual(scenario, web=web)


class Aliasing(FakeProvider):
    canonical = "topology.kubernetes.io/zone"

    @hookimpl
    def karpenter_classify_labels(self):
        return LabelClasses(aliases={"zone": self.canonical})


def test_two_meanings_of_a_label_name_both_plugins(virtual):
    data = Aliasing("data", DataNodeClass)
    data.canonical = "data.example.com/zone"

    async def scenario(world):
        pytest.fail("started")

    with pytest.raises(PluginError, match=r'label "zone" stands for .*"data" and .*"web"'):
        virtual(scenario, web=Aliasing(), data=data)


# -- prices and risks


class Discount:
    def __init__(self, share):
        self.share = share

    @hookimpl
    def karpenter_adjust_prices(self, offerings):
        return [
            Price(line.offering.price.amount * self.share)
            if line.instance_type.name == "small"
            else None
            for line in offerings
        ]


class Risk:
    def __init__(self, risk):
        self.risk = risk

    @hookimpl
    def karpenter_rate_risk(self, offerings):
        return [self.risk if line.offering.capacity_type == "spot" else None for line in offerings]


def test_plugins_change_prices_and_risks_of_the_catalogue(virtual):
    """Prices one after the other; of the risks the highest counts."""

    async def plain(world):
        before.update({it.name: it for it in await world.catalogue(node_class())})

    async def scenario(world):
        for it in await world.catalogue(node_class()):
            for new, old in zip(it.offerings, before[it.name].offerings, strict=True):
                factor = 0.25 if it.name == "small" else 1
                assert new.price.amount == pytest.approx(old.price.amount * factor)
                assert new.interruption_risk == (0.2 if new.capacity_type == "spot" else 0)
                if it.name == "small":
                    assert new.list_price == old.price
                    assert new.price_source == 'plug-in "a", plug-in "b"'
                else:
                    assert (new.list_price, new.price_source) == (None, "")

    before = {}
    virtual(plain, web=FakeProvider())
    plugins = {"a": Discount(0.5), "b": Discount(0.5), "c": Risk(0.2), "d": Risk(0.1)}
    virtual(scenario, web=FakeProvider(), **plugins)


def test_instance_types_that_no_price_plugin_changes_stay_the_same_objects(virtual):
    async def scenario(world):
        first, second = [
            {it.name: it for it in await world.catalogue(node_class())} for _ in range(2)
        ]
        assert first.keys() - {"small"}
        assert all(second[name] is it for name, it in first.items() if name != "small")
        assert second["small"] is not first["small"]

    types = tuple(FakeProvider().karpenter_list_instance_types())

    class Steady(FakeProvider):
        @hookimpl
        def karpenter_list_instance_types(self):
            return types

    virtual(scenario, web=Steady(), pricing=Discount(0.5))


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (Discount(None), 'plug-in "pricing" failed in karpenter_adjust_prices'),
        (Risk(7), 'plug-in "pricing": karpenter_rate_risk rated small with 7'),
    ],
)
def test_a_price_plugin_that_fails_fails_the_catalogue(virtual, plugin, words):
    async def scenario(world):
        with pytest.raises(CloudProviderError, match=words):
            await world.catalogue(node_class())

    virtual(scenario, web=FakeProvider(), pricing=plugin)


@pytest.mark.parametrize(
    ("hook", "answer"), [("karpenter_rate_risk", [0.1]), ("karpenter_adjust_prices", [None])]
)
def test_a_price_plugin_that_answers_for_some_offerings_only_fails_the_catalogue(
    virtual, hook, answer
):
    """Its answers would be taken for those of other offerings."""
    plugin = Discount(0.5) if hook == "karpenter_adjust_prices" else Risk(0.1)
    setattr(plugin, hook, hookimpl(lambda offerings: answer))

    async def scenario(world):
        with pytest.raises(CloudProviderError, match=f'plug-in "pricing".*{hook}'):
            await world.catalogue(node_class())

    virtual(scenario, web=FakeProvider(), pricing=plugin)


def test_a_type_listed_twice_is_refused(virtual):
    class Doubling(FakeProvider):
        @hookimpl
        def karpenter_list_instance_types(self):
            return [*super().karpenter_list_instance_types()] * 2

    async def scenario(world):
        with pytest.raises(CloudProviderError, match="lists small twice"):
            await world.catalogue(node_class())

    virtual(scenario, web=Doubling())


def test_terminations_of_one_instance_join(virtual):
    web = FakeProvider()

    async def scenario(world):
        answers = await asyncio.gather(
            *(world.providers.terminate(WEB, "fake://web-1") for _ in range(3))
        )
        assert answers == [TerminationStatus.GONE] * 3
        assert web.terminations == [["fake://web-1"]]

    virtual(scenario, web=web)


class PairwiseDrift(FakeProvider):
    """Checks two claims at once, and fails for those that are named so."""

    def __init__(self):
        super().__init__(batch_limits={"karpenter_detect_drift": BatchLimits(size=2)})
        self.looks = []

    @hookimpl
    def karpenter_detect_drift(self, node_claims):
        names = [claim.name for claim in node_claims]
        self.looks.append(names)
        if "failing" in names:
            raise OSError("no route to host")
        return [DriftFinding(reason="ImageDrift")] * len(names)


def test_drift_is_queried_in_batches_and_a_failed_one_affects_no_other(virtual):
    """The error of a call is the outcome of each of its claims."""
    web = PairwiseDrift()

    async def scenario(world):
        names = ("web-1", "failing", "web-2", "web-3", "web-4")
        claims = [(await world.request(name, node_class())).node_claim for name in names]
        drift = await world.providers.detect_drift(claims, node_class())
        assert [type(outcome).__name__ for outcome in drift] == [
            "CloudProviderError", "CloudProviderError", "DriftFinding", "DriftFinding",
            "DriftFinding",
        ]  # fmt: skip
        assert "no route to host" in str(drift[0])

    virtual(scenario, web=web)
    assert web.looks == [["web-1", "failing"], ["web-2", "web-3"], ["web-4"]]


# -- invalid values

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what a plug-in must not return
AWARE = NAIVE.replace(tzinfo=UTC)


class Announces(FakeProvider):
    def __init__(self, *messages):
        super().__init__()
        self.messages = messages

    @hookimpl
    def karpenter_poll_interruptions(self):
        return self.messages


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("deadline", NAIVE, "a time with a time zone"),
        ("announced_at", "2026-01-01T00:00:00Z", "a time with a time zone"),
        ("error", "sold out", "a CloudProviderError"),
    ],
)
def test_invalid_value_of_an_announcement_is_ignored_and_logged_once(virtual, field, value, wanted):
    """The instance is interrupted all the same, and other announcements are not delayed."""
    valid = Interruption(id="2", kind=InterruptionKind.LAUNCH_FAILED, deadline=AWARE)
    web = Announces(replace(valid, id="1", **{field: value}), valid)

    async def scenario(world):
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                first, second = await world.providers.poll_interruptions("web")
                assert (first.kind, getattr(first, field)) == (valid.kind, None)
                assert second == valid
        (problem,) = [entry["problem"] for entry in logs if "problem" in entry]
        assert problem == f'Interruption "1": {field} must be {wanted}, not {value!r}'

    virtual(scenario, web=web)


@pytest.mark.parametrize(
    ("kind", "read_as"),
    [("SpotInterruption", InterruptionKind.SPOT_RECLAIM), ("Meteor", InterruptionKind.UNKNOWN)],
)
def test_kind_of_an_announcement_that_is_a_text_is_read(virtual, kind, read_as):
    async def scenario(world):
        (message,) = await world.providers.poll_interruptions("web")
        assert message.kind is read_as

    virtual(scenario, web=Announces(Interruption(id="1", kind=kind)))


@pytest.mark.parametrize("value", [NAIVE, 5.0])
def test_listing_with_an_invalid_time_is_refused(virtual, value):
    web = FakeProvider()
    listing = InstanceListing(instances=(), as_of=value)
    web.karpenter_list_instances = hookimpl(lambda: listing)

    async def scenario(world):
        with pytest.raises(CloudProviderError) as refused:
            await world.providers.list_instances("web")
        assert str(refused.value) == (
            'plug-in "web": karpenter_list_instances: InstanceListing: as_of must be a time with a '
            f"time zone, not {value!r}"
        )

    virtual(scenario, web=web)


@pytest.mark.parametrize("late", [False, True])
def test_launched_instance_with_invalid_shortages_is_kept_without_them(virtual, late):
    shortage = InsufficientCapacityError("sold out")
    limits = BatchLimits(timeout=timedelta(seconds=30))
    web = FakeProvider(batch_limits={"karpenter_launch_instances": limits})

    async def answer(requests):
        await asyncio.sleep(60 if late else 0)
        return [replace(launched(each), shortages=shortage) for each in requests]

    web.answer = answer

    async def scenario(world):
        late_outcomes = []
        world.providers.subscribe_late_launches(lambda _, each: late_outcomes.append(each))
        with structlog.testing.capture_logs() as logs:
            outcome = await world.launch(await world.request("web-1", node_class()))
            if late:
                assert isinstance(outcome, CallPendingError)
                await asyncio.sleep(60)
                (outcome,) = late_outcomes
        assert (outcome.provider_id, outcome.shortages) == ("fake://web-1", ())
        (problem,) = [entry["problem"] for entry in logs if "problem" in entry]
        assert problem.startswith('LaunchedInstance "fake://web-1": shortages must be a tuple')

    virtual(scenario, web=web)
