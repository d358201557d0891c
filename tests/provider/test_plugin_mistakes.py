"""A mistake of a plug-in is one readable error of its own call, whatever it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
import structlog

from karpenter_core.api.conditions import Condition
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.api.records import NodeView
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    ConflictError,
    PluginError,
    ThrottledError,
)
from karpenter_core.provider.contract import (
    BatchLimits,
    DriftFinding,
    Instance,
    InstanceListing,
    Interruption,
    InterruptionKind,
    LabelClasses,
    LaunchedInstance,
    NodeClassHash,
    NodeClassResolution,
    PeriodicTask,
    RegistrationGate,
    SettingSpec,
)
from karpenter_core.provider.host.executor import InlineExecutor, ThreadExecutor
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.markers import hookimpl
from karpenter_core.testing.provider_world import ProviderWorld
from tests.provider.fakes import FakeProvider, WebNodeClass, launched, node_class

WEB = NodeClassRef(group="web.example.com", kind="WebNodeClass", name="default")
NODE = NodeView(uid="uid-node", name="node")
LONGEST_MESSAGE = 700


class PanicError(BaseException):
    """Like the panics of extension modules and the time-outs of gevent, which are no `Exception`."""


ODD_ERRORS = [
    KeyboardInterrupt(),
    SystemExit(3),
    asyncio.CancelledError(),
    GeneratorExit(),
    PanicError("index out of range"),
    MemoryError(),
    StopIteration(),
]


def plugin(**hooks):
    """Make a provider with other hooks."""
    return type("Plugin", (FakeProvider,), {k: hookimpl(hook) for k, hook in hooks.items()})()


def returning(value):
    return lambda self: value


async def answer_of(tmp_path, faulty, act, *, executor=None):
    """Return what a call returns or raises, within seconds."""
    world = ProviderWorld(
        plugins={"web": faulty}, cache_folder=tmp_path, executor=executor or ThreadExecutor()
    )
    async with world, asyncio.timeout(5):
        try:
            return await act(world)
        except CloudProviderError as error:
            return error


async def list_instances(world):
    return await world.providers.list_instances("web")


async def launch(world):
    return await world.providers.launch(await world.request("web-1", node_class()))


def assert_readable(error, *words):
    assert type(error) is CloudProviderError
    message = str(error)
    for word in ('plug-in "web"', *words):
        assert word in message
    assert len(message) <= LONGEST_MESSAGE
    assert "\n" not in message


# -- exceptions


@pytest.mark.parametrize("executor", [ThreadExecutor, InlineExecutor])
@pytest.mark.parametrize("raised", ODD_ERRORS, ids=repr)
@pytest.mark.parametrize("is_async", [False, True])
async def test_any_exception_of_a_hook_is_the_error_of_its_call(
    tmp_path, executor, raised, is_async
):
    def plain(self):
        raise raised

    async def coroutine(self):
        raise raised

    faulty = plugin(karpenter_list_instances=coroutine if is_async else plain)
    error = await answer_of(tmp_path, faulty, list_instances, executor=executor())
    assert_readable(error, "failed in karpenter_list_instances", type(raised).__name__)


@pytest.mark.parametrize("raised", ODD_ERRORS, ids=repr)
async def test_any_exception_of_a_hook_for_one_item_is_its_outcome(tmp_path, raised):
    async def karpenter_launch_instances(self, request):
        await asyncio.sleep(0)
        raise raised

    faulty = plugin(karpenter_launch_instances=one_by_one(karpenter_launch_instances))
    error = await answer_of(tmp_path, faulty, launch)
    assert_readable(error, "failed in karpenter_launch_instances", type(raised).__name__)


@pytest.mark.parametrize("raised", ODD_ERRORS, ids=repr)
async def test_any_exception_of_a_veto_excludes_the_node_alone(tmp_path, raised):
    def karpenter_veto_candidate(self, candidate):
        raise raised

    faulty = plugin(karpenter_veto_candidate=karpenter_veto_candidate)
    reasons = await answer_of(tmp_path, faulty, lambda world: world.providers.vetoes(None))
    assert type(raised).__name__ in reasons["web"]


@pytest.mark.parametrize("raised", ODD_ERRORS, ids=repr)
async def test_any_exception_of_a_task_is_its_error(tmp_path, raised):
    def run():
        raise raised

    tasks = [PeriodicTask(name="prices", period=timedelta(minutes=5), run=run)]
    faulty = plugin(karpenter_declare_tasks=returning(tasks))
    error = await answer_of(tmp_path, faulty, lambda world: world.providers.tasks()[0].run())
    assert_readable(error, "failed in its task prices", type(raised).__name__)


@pytest.mark.parametrize(
    "raised",
    [
        BadInputError("2 cores is no amount"),
        ConflictError("it exists", status=409),
        PluginError("x"),
    ],
    ids=repr,
)
async def test_an_error_of_the_core_that_is_none_of_a_provider_is_the_error_of_its_call(
    tmp_path, raised
):
    """A kit function may raise one; nobody above the façade expects it from a provider."""

    def karpenter_list_instance_types(self):
        raise raised

    faulty = plugin(karpenter_list_instance_types=karpenter_list_instance_types)
    error = await answer_of(tmp_path, faulty, lambda world: world.catalogue(node_class()))
    assert_readable(error, "failed in karpenter_list_instance_types", repr(raised))


async def test_a_call_that_is_cancelled_from_outside_stays_cancelled(tmp_path):
    entered = asyncio.Event()

    async def karpenter_adjust_prices(self, offerings):
        entered.set()
        await asyncio.sleep(60)

    faulty = plugin(karpenter_adjust_prices=karpenter_adjust_prices)
    world = ProviderWorld(plugins={"web": faulty}, cache_folder=tmp_path, executor=ThreadExecutor())
    async with world:
        call = asyncio.create_task(world.catalogue(node_class()))
        await entered.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_an_exception_that_cannot_be_described_is_named_by_its_type(tmp_path):
    class SilentError(Exception):
        def __repr__(self):
            raise ValueError

    def karpenter_list_instances(self):
        raise SilentError

    faulty = plugin(karpenter_list_instances=karpenter_list_instances)
    assert_readable(await answer_of(tmp_path, faulty, list_instances), "SilentError")


async def test_a_long_exception_is_cut_off(tmp_path):
    def karpenter_list_instances(self):
        raise ValueError("<html>" + 1_000_000 * "x")

    faulty = plugin(karpenter_list_instances=karpenter_list_instances)
    assert_readable(await answer_of(tmp_path, faulty, list_instances), "ValueError('<html>xx")


@pytest.mark.parametrize("raised", [SystemExit(1), PanicError("no libcloud.so")], ids=repr)
def test_a_plugin_that_ends_the_process_while_loading_is_named(raised):
    class Ending:
        @hookimpl
        def karpenter_provider_info(self):
            raise raised

    with pytest.raises(PluginError, match=r'plug-in "web".*karpenter_provider_info failed'):
        load_plugins(entry_points=(), extra={"web": Ending()})


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"group": "Web_Example"}, "resource.group must be a domain in lower case"),
        ({"group": "web"}, "resource.group must be a domain in lower case"),
        ({"version": "1"}, "resource.version must be a version such as v1"),
        ({"kind": "webNodeClass"}, "resource.kind must be a name in CamelCase"),
        ({"plural": "WebNodeClasses"}, "resource.plural must be a name in lower case"),
    ],
)
def test_a_node_class_that_the_api_server_would_refuse_stops_the_start(names, words):
    resource = replace(WebNodeClass.resource, **names)
    model = type("MisnamedNodeClass", (WebNodeClass,), {"resource": resource})
    with pytest.raises(PluginError) as error:
        load_plugins(entry_points=(), extra={"web": FakeProvider(model=model)})
    assert str(error.value).startswith('plug-in "web" (given by the program): MisnamedNodeClass: ')
    assert words in str(error.value)


# -- answers


def instances(count):
    return [Instance(provider_id=f"web://{number}") for number in range(count)]


async def test_an_answer_with_many_items_is_counted_and_not_printed(tmp_path):
    faulty = plugin(karpenter_list_instances=returning(instances(100_000)))
    error = await answer_of(tmp_path, faulty, list_instances)
    assert_readable(error, "must return InstanceListing, not a list of 100000 items")


async def test_a_listing_with_a_list_of_instances_is_read(tmp_path):
    faulty = plugin(karpenter_list_instances=returning(InstanceListing(instances=instances(2))))
    listing = await answer_of(tmp_path, faulty, list_instances)
    assert listing.instances == tuple(instances(2))


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (
            {"instances": (each for each in instances(2))},
            "InstanceListing: instances must be a tuple of Instance, not <generator",
        ),
        (
            {"instances": map(str, ())},
            "instances must be a tuple of Instance, not <map object",
        ),
        ({"instances": ({"id": "web://1"},)}, "instances must be a tuple of Instance, not one with {"),
        ({"instances": None}, "instances must be a tuple of Instance, not None"),
        ({"complete": "no"}, "complete must be True or False, not 'no'"),
        ({"complete": None}, "complete must be True or False, not None"),
    ],
)  # fmt: skip
async def test_a_listing_that_cannot_be_read_twice_or_at_all_is_refused(tmp_path, listed, words):
    """A generator would be empty for the second who reads it: all instances would seem gone."""
    listing = InstanceListing(**{"instances": (), **listed})
    faulty = plugin(karpenter_list_instances=returning(listing))
    assert_readable(await answer_of(tmp_path, faulty, list_instances), words)


INVALID_FIELDS = [
    ({"provider_id": ""}, "Instance \"\": provider_id must be a text that is not empty, not ''"),
    ({"provider_id": None}, "provider_id must be a text that is not empty, not None"),
    ({"token": None}, 'Instance "web://1": token must be a text, not None'),
    ({"node_claim": 7}, "node_claim must be a text, not 7"),
    ({"created": datetime(2026, 1, 1)}, "created must be a time with a time zone, not datetime"),  # noqa: DTZ001
    ({"created": "2026-01-01"}, "created must be a time with a time zone, not '2026-01-01'"),
    ({"terminating": "stopping"}, "terminating must be True or False, not 'stopping'"),
    ({"launched_for": "uid-1"}, "launched_for must be a tuple of texts, not 'uid-1'"),
]


@pytest.mark.parametrize(("fields", "words"), INVALID_FIELDS)
async def test_an_invalid_field_of_a_listed_instance_is_named(tmp_path, fields, words):
    found = Instance(**{"provider_id": "web://1", **fields})
    listing = InstanceListing(instances=(*instances(3), found))
    faulty = plugin(karpenter_list_instances=returning(listing))
    assert_readable(await answer_of(tmp_path, faulty, list_instances), words)


@pytest.mark.parametrize(("fields", "words"), INVALID_FIELDS)
async def test_an_invalid_field_of_a_fetched_instance_is_named(tmp_path, fields, words):
    found = Instance(**{"provider_id": "web://1", **fields})
    faulty = plugin(karpenter_fetch_instances=lambda self, provider_ids: [found])
    outcome = await answer_of(tmp_path, faulty, lambda world: world.providers.fetch(WEB, "web://1"))
    assert_readable(outcome, words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"provider_id": ""}, "provider_id must be a text that is not empty, not ''"),
        ({"provider_id": 17}, "provider_id must be a text that is not empty, not 17"),
        ({"zone": "North Zone"}, "zone must be a label value, not 'North Zone'"),
        ({"zone": None}, "zone must be a label value, not None"),
        ({"instance_type": 7}, "instance_type must be a label value, not 7"),
        ({"capacity_type": "SPOT"}, "capacity_type must be reserved, spot or on-demand, not 'SPOT'"),
        ({"image_id": None}, "image_id must be a text, not None"),
        ({"capacity": {"cpu": float("nan")}}, "capacity.cpu must be a whole number of milli-cores"),
        ({"capacity": {"memory": "16Gi"}}, "capacity.memory must be a whole number of bytes"),
        ({"allocatable": None}, "allocatable must be a mapping, not None"),
    ],
)  # fmt: skip
async def test_an_invalid_description_of_a_launched_instance_is_named(tmp_path, fields, words):
    faulty = FakeProvider()
    faulty.answer = lambda requests: [replace(launched(each), **fields) for each in requests]
    assert_readable(await answer_of(tmp_path, faulty, launch), "LaunchedInstance", words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"labels": {"web.example.com/family": "General Purpose"}}, "labels: web.example.com/family"),
        ({"labels": {"web.example.com/gpu": True}}, "labels: web.example.com/gpu"),
        ({"labels": {"a family": "m"}}, "labels: a family"),
        ({"labels": ["family"]}, "labels must be a mapping"),
        ({"annotations": {"web.example.com/disk": 20}}, "annotations: web.example.com/disk"),
    ],
)  # fmt: skip
async def test_a_launched_instance_is_kept_without_its_invalid_labels(tmp_path, fields, words):
    """The API server would refuse the NodeClaim with them each time, and its instance with it."""
    valid = {"web.example.com/generation": "5"}
    faulty = FakeProvider()

    def described(request):
        given = {
            name: {**valid, **value} if isinstance(value, dict) else value
            for name, value in fields.items()
        }
        return replace(launched(request), **given)

    faulty.answer = lambda requests: [described(each) for each in requests]
    with structlog.testing.capture_logs() as logs:
        outcome = await answer_of(tmp_path, faulty, launch)
    assert isinstance(outcome, LaunchedInstance)
    (name,) = fields
    assert getattr(outcome, name) in ({}, valid)
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert words in line["problem"]


@pytest.mark.parametrize(
    ("resolution", "words"),
    [
        ({"status": {"a", "b"}}, "status must be a mapping"),
        ({"status": {1: "x"}}, "status must be a mapping with texts as keys, not one with 1"),
        ({"conditions": ({"type": "Ready"},)}, "conditions must be a tuple of Condition, not one with {"),
        ({"conditions": (each for each in ())}, "conditions must be a tuple of Condition, not <generator"),
        ({"retry_after": 30}, "retry_after must be a timedelta, not 30"),
    ],
)  # fmt: skip
async def test_an_invalid_resolution_is_named(tmp_path, resolution, words):
    answer = NodeClassResolution(**resolution)
    faulty = plugin(karpenter_resolve_node_class=returning(answer))
    error = await answer_of(
        tmp_path, faulty, lambda world: world.providers.resolve_node_class(node_class())
    )
    assert_readable(error, "karpenter_resolve_node_class", words)


async def test_a_resolution_with_a_list_of_conditions_is_read(tmp_path):
    ready = Condition(type="Ready", status="True", reason="Ready")
    faulty = plugin(karpenter_resolve_node_class=returning(NodeClassResolution(conditions=[ready])))
    answer = await answer_of(
        tmp_path, faulty, lambda world: world.providers.resolve_node_class(node_class())
    )
    assert answer.conditions == (ready,)


@pytest.mark.parametrize("fields", [{"value": 5}, {"version": 1}, {"value": ""}])
async def test_a_hash_that_is_no_text_is_named(tmp_path, fields):
    answer = NodeClassHash(**{"value": "x", "version": "v1", **fields})
    faulty = plugin(karpenter_hash_node_class=returning(answer))
    error = await answer_of(
        tmp_path, faulty, lambda world: world.providers.hash_node_class(node_class())
    )
    (name,) = fields
    assert_readable(error, f"NodeClassHash: {name} must be a text that is not empty")


async def test_a_hook_that_yields_is_refused_because_nothing_of_it_runs(tmp_path):
    def karpenter_finalize_node_class(self, node_class):
        yield

    faulty = plugin(karpenter_finalize_node_class=karpenter_finalize_node_class)
    error = await answer_of(
        tmp_path, faulty, lambda world: world.providers.finalize_node_class(node_class())
    )
    assert_readable(error, "karpenter_finalize_node_class must not yield", "nothing of it ran")


async def test_hooks_that_are_open_to_every_plugin_may_be_coroutines(tmp_path):
    seen = []

    async def karpenter_observe_decision(self, decision):
        await asyncio.sleep(0)
        seen.append(decision)

    async def karpenter_veto_candidate(self, candidate):
        await asyncio.sleep(0)
        return "it is mine"

    faulty = plugin(
        karpenter_observe_decision=karpenter_observe_decision,
        karpenter_veto_candidate=karpenter_veto_candidate,
    )

    async def act(world):
        decision = SimpleNamespace(id="decision-1")
        await world.providers.observe_decision(decision)
        assert seen == [decision]
        return await world.providers.vetoes(None)

    assert await answer_of(tmp_path, faulty, act) == {"web": "it is mine"}


@pytest.mark.parametrize("answer", [False, "", 0, True])
async def test_a_veto_that_is_no_reason_is_named(tmp_path, answer):
    faulty = plugin(karpenter_veto_candidate=lambda self, candidate: answer)
    reasons = await answer_of(tmp_path, faulty, lambda world: world.providers.vetoes(None))
    words = f"karpenter_veto_candidate must return a reason or None, not {answer!r}"
    assert reasons == {"web": f'plug-in "web": {words}'}


# -- declarations


async def start_error(tmp_path, faulty):
    world = ProviderWorld(plugins={"web": faulty}, cache_folder=tmp_path, executor=ThreadExecutor())
    with pytest.raises(PluginError) as error:
        async with world:
            pytest.fail("started")
    assert str(error.value).startswith('plug-in "web"')
    return str(error.value)


def nothing():
    """A task that does nothing."""


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"period": 60}, "the period of the task prices must be a timedelta of a second or more, not 60"),
        ({"period": timedelta()}, "must be a timedelta of a second or more, not datetime.timedelta(0)"),
        ({"name": ""}, "a task must have a name, not ''"),
        ({"run": None}, "run of the task prices must be a function"),
    ],
)  # fmt: skip
async def test_a_task_that_cannot_be_run_stops_the_start(tmp_path, fields, words):
    task = PeriodicTask(**{"name": "prices", "period": MINUTE, "run": nothing, **fields})
    error = await start_error(tmp_path, plugin(karpenter_declare_tasks=returning([task])))
    assert words in error


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"well_known": ["a"]}, "LabelClasses.well_known must be a frozenset, not ['a']"),
        ({"aliases": [("a", "b")]}, "LabelClasses.aliases must be a mapping, not ["),
        ({"known_values": {"a": "bc"}}, "LabelClasses.known_values['a'] must hold several texts, not 'bc'"),
    ],
)  # fmt: skip
async def test_label_classes_of_other_types_stop_the_start(tmp_path, fields, words):
    faulty = plugin(karpenter_classify_labels=returning(LabelClasses(**fields)))
    assert words in await start_error(tmp_path, faulty)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"flag": "web-url"}, "flag of a setting must be like --mycloud-endpoint, not 'web-url'"),
        ({"env": "web url"}, "env of a setting must be like MYCLOUD_ENDPOINT, not 'web url'"),
        ({"default": None}, "the default of --web-url must be a text, a number"),
    ],
)
def test_a_setting_that_cannot_be_parsed_stops_the_start(fields, words):
    spec = SettingSpec(
        **{"flag": "--web-url", "env": "WEB_URL", "default": "", "help": "Url.", **fields}
    )
    faulty = plugin(karpenter_add_settings=returning([spec]))
    with pytest.raises(PluginError) as error:
        load_plugins(entry_points=(), extra={"web": faulty}).settings()
    assert str(error.value).startswith('plug-in "web"')
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_instance_types": "many"}, "max_instance_types must be a whole number above zero"),
        ({"batch_limits": {"karpenter_launch_instances": 5}}, "must be BatchLimits, not 5"),
        ({"batch_limits": {"karpenter_launch_instances": BatchLimits(timeout=5)}}, ".timeout must be a timedelta, not 5"),
        ({"batch_limits": {"karpenter_launch_instances": BatchLimits(size=0)}}, ".size must be above zero, not 0"),
        ({"reads": ("secrets",)}, "reads must be a tuple of ObjectRead, not one with 'secrets'"),
        ({"repair_policies": (("Ready", "False", 5),)}, "repair_policies must be a tuple of RepairPolicy"),
        ({"node_classes": (int,)}, "node_classes must be a tuple of models with a resource"),
    ],
)  # fmt: skip
async def test_a_description_with_an_invalid_value_stops_the_start(tmp_path, fields, words):
    info = replace(FakeProvider().karpenter_provider_info(), **fields)
    assert words in await start_error(tmp_path, plugin(karpenter_provider_info=returning(info)))


@pytest.mark.parametrize("reason", [None, "image changed", "Image."])
async def test_a_reason_of_drift_that_no_condition_can_have_is_named(tmp_path, reason):
    """The API server would refuse the whole status of the NodeClaim for it."""
    faulty = plugin(karpenter_detect_drift=lambda self, node_claims: [DriftFinding(reason=reason)])

    async def act(world):
        request = await world.request("web-1", node_class())
        (outcome,) = await world.providers.detect_drift([request.node_claim], node_class())
        return outcome

    error = await answer_of(tmp_path, faulty, act)
    assert_readable(error, f"DriftFinding: reason must be in CamelCase, not {reason!r}")


async def test_a_gate_whose_wait_is_a_number_is_named(tmp_path):
    gate = RegistrationGate(name="cloud-controller", retry_after=5)
    faulty = plugin(karpenter_gate_registration=returning(gate))

    async def act(world):
        request = await world.request("web-1", node_class())
        return await world.providers.gate_registration(request.node_claim, NODE)

    error = await answer_of(tmp_path, faulty, act)
    assert_readable(error, "RegistrationGate: retry_after must be a timedelta, not 5")


async def test_a_throttled_call_whose_wait_is_a_number_is_named(tmp_path):
    faulty = FakeProvider()

    def answer(requests):
        raise ThrottledError("slow down", retry_after=5)

    faulty.answer = answer
    error = await answer_of(tmp_path, faulty, launch)
    assert_readable(error, "ThrottledError.retry_after must have the type timedelta, not 5")


async def test_texts_of_an_announcement_that_are_none_are_reported(tmp_path):
    odd = Interruption(id=17, kind=InterruptionKind.SPOT_RECLAIM, provider_id=None)
    faulty = plugin(karpenter_poll_interruptions=returning([odd]))
    with structlog.testing.capture_logs() as logs:
        (found,) = await answer_of(
            tmp_path, faulty, lambda world: world.providers.poll_interruptions("web")
        )
    assert (found.id, found.provider_id) == ("17", "")
    problems = [line["problem"] for line in logs if line["log_level"] == "error"]
    assert problems == [
        'Interruption "17": id must be a text, not 17',
        'Interruption "17": provider_id must be a text, not None',
    ]
