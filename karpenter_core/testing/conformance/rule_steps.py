"""Steps shared by the rules: start a provider, launch, list, terminate.

The authors of providers read the failures: each assertion says what was expected and what happened.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from karpenter_core.errors import CloudProviderError, KarpenterError, ThrottledError
from karpenter_core.provider.contract import LaunchedInstance, TerminationStatus
from karpenter_core.testing.conformance.prerequisites import (
    START,
    BrokenPrerequisite,
    LaunchRefusedError,
    broken_launch,
    broken_prerequisite,
    rule_of_refusal,
    skip_unless_loaded,
)
from karpenter_core.testing.provider_world import ProviderWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping
    from pathlib import Path

    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import (
        Instance,
        InstanceListing,
        LaunchOutcome,
        LaunchRequest,
    )
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.testing.provider_world import FakeNodes
    from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject

__all__ = [
    "GONE_WITHIN_SECONDS",
    "booted_node",
    "catalogue",
    "current_listing",
    "direct_call",
    "launch",
    "launch_after_pause",
    "launch_new_claim",
    "list_by_provider_id",
    "network_forbidden",
    "new_world",
    "run_rule",
    "run_tasks",
    "show_node",
    "skip_unless_implemented",
    "skip_unless_loaded",
    "skip_unless_started",
    "skip_unless_supported",
    "terminate_until_gone",
    "trouble",
]

GONE_WITHIN_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
_UNKNOWN_WAIT_SECONDS: Final = 1.0
_FORBIDDEN_EVENTS: Final = frozenset(
    {"socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.system"}
)


# ruff: noqa: S101 - this is a test suite


def new_world(subject: ConformanceSubject, folder: Path) -> ProviderWorld:
    """Return a world for a new process of the provider; `async with` starts it."""
    return ProviderWorld(
        plugins={subject.name: subject.make()},
        cache_folder=folder,
        settings=subject.settings,
        cluster=subject.cluster,
    )


def run_rule(
    subject: ConformanceSubject,
    folder: Path,
    scenario: Callable[[ProviderWorld], Awaitable[None]],
    *,
    shows: str = "",
    needs_launch: bool = False,
    nodes: FakeNodes | None = None,
) -> None:
    """Run a scenario with a started provider.

    Skips the rule if a rule that it depends on is broken (`prerequisites`), unless it tests that rule
    itself (`shows`): one mistake breaks one rule, not sixty. `needs_launch` is for rules whose own
    checks fail when nothing can be launched. `nodes` are those that an earlier process left.
    """
    skip_unless_loaded(subject)

    async def play() -> None:
        world = new_world(subject, folder)
        if nodes is not None:
            world.nodes = nodes
        try:
            await world.__aenter__()
        except KarpenterError as error:
            _skip_for(_not_started(error), shows)
            raise
        try:
            await scenario(world)
        except (CloudProviderError, LaunchRefusedError) as error:
            _skip_for(await broken_prerequisite(world, subject, error), shows)
            raise
        except AssertionError:
            if needs_launch:
                _skip_for(await broken_launch(world, subject), shows)
            raise
        finally:
            await world.__aexit__(None, None, None)

    asyncio.run(play())


def skip_unless_started(subject: ConformanceSubject, folder: Path) -> None:
    """Skip the rule when the plug-in does not load, or does not start without any fault."""
    skip_unless_loaded(subject)

    async def play() -> None:
        try:
            async with new_world(subject, folder):
                pass
        except KarpenterError as error:
            _skip_for(_not_started(error), "")

    asyncio.run(play())


def _not_started(error: KarpenterError) -> BrokenPrerequisite:
    return BrokenPrerequisite(START, f"the plug-in does not start: {error}")


def _skip_for(found: BrokenPrerequisite | None, shows: str) -> None:
    if found is not None and found.rule != shows:
        pytest.skip(f"not shown: {found.why} ({found.rule})")


def skip_unless_implemented(world: ProviderWorld, subject: ConformanceSubject, hook: str) -> None:
    """Skip the rule if the provider does not implement an optional hook."""
    if world.loaded.caller(hook, subject.name) is None:
        pytest.skip(f"does not apply: {hook} is not implemented")


def skip_unless_supported(subject: ConformanceSubject, wanted: CloudTrouble) -> None:
    """Skip the rule if the simulated cloud cannot simulate this failure."""
    if subject.trouble is None or wanted not in subject.troubles:
        pytest.skip(
            f"not shown: the subject cannot simulate {wanted.value} (ConformanceSubject.troubles)"
        )


@contextmanager
def trouble(
    subject: ConformanceSubject, world: ProviderWorld, wanted: CloudTrouble
) -> Generator[None, None, None]:
    """Simulate a failure of the cloud inside the block."""
    skip_unless_supported(subject, wanted)
    assert subject.trouble is not None
    with subject.trouble(world.plugins[subject.name], wanted):
        yield


async def launch_after_pause(world: ProviderWorld, request: LaunchRequest) -> LaunchOutcome:
    """Launch, and wait as the core does while the provider keeps to the pause of a throttled call."""
    deadline = world.clock.monotonic() + GONE_WITHIN_SECONDS
    outcome = await world.launch(request)
    while isinstance(outcome, ThrottledError) and world.clock.monotonic() < deadline:
        wait = outcome.retry_after
        await asyncio.sleep(_UNKNOWN_WAIT_SECONDS if wait is None else wait.total_seconds())
        outcome = await world.launch(request)
    return outcome


async def launch(world: ProviderWorld, request: LaunchRequest) -> LaunchedInstance:
    """Launch an instance; the launch must succeed."""
    outcome = await launch_after_pause(world, request)
    if not isinstance(outcome, LaunchedInstance):
        raise LaunchRefusedError(f"without any fault a launch returned {outcome!r}")
    return outcome


async def catalogue(
    world: ProviderWorld, subject: ConformanceSubject, rule: str
) -> tuple[InstanceType, ...]:
    """Return the catalogue; fail if the core refuses it for a value that this rule is about."""
    await world.resolved(subject.node_class)
    try:
        return await world.catalogue(subject.node_class)
    except CloudProviderError as error:
        if rule_of_refusal(str(error)) == rule:
            pytest.fail(str(error))
        raise


async def launch_new_claim(
    world: ProviderWorld, subject: ConformanceSubject, name: str
) -> tuple[LaunchRequest, LaunchedInstance]:
    """Launch an instance for a new claim."""
    request = await world.request(name, subject.node_class)
    return request, await launch(world, request)


async def current_listing(world: ProviderWorld, subject: ConformanceSubject) -> InstanceListing:
    """Return a listing that shows the moment of this call; one that is behind is read again."""
    called_at, deadline = world.clock.now(), world.clock.monotonic() + GONE_WITHIN_SECONDS
    listing = await world.providers.list_instances(subject.name)
    while listing.as_of is not None and listing.as_of <= called_at:
        if world.clock.monotonic() >= deadline:
            pytest.fail(
                f"{GONE_WITHIN_SECONDS:g} s after {called_at.isoformat()} the listing still shows "
                f"the instances of {listing.as_of.isoformat()}"
            )
        await asyncio.sleep(_PAUSE_SECONDS)
        listing = await world.providers.list_instances(subject.name)
    return listing


async def list_by_provider_id(
    world: ProviderWorld, subject: ConformanceSubject
) -> Mapping[str, Instance]:
    """Return the instances that the provider lists, by provider ID."""
    listing = await current_listing(world, subject)
    ids = [instance.provider_id for instance in listing.instances]
    assert len(ids) == len(set(ids)), f"karpenter_list_instances lists ids twice: {sorted(ids)}"
    return {instance.provider_id: instance for instance in listing.instances}


async def terminate_until_gone(
    world: ProviderWorld, request: LaunchRequest, provider_id: str
) -> None:
    """Terminate until it is gone."""
    ref = request.node_claim.spec.node_class_ref
    deadline = world.clock.monotonic() + GONE_WITHIN_SECONDS
    answer: object = None
    while world.clock.monotonic() < deadline:
        answer = await world.providers.terminate(ref, provider_id)
        await world.settle()
        if answer is TerminationStatus.GONE:
            world.claims.pop(request.node_claim.name, None)
            return
        assert not isinstance(answer, CloudProviderError), (
            f"terminating {provider_id} returned {answer!r}"
        )
        await asyncio.sleep(_PAUSE_SECONDS)
    pytest.fail(
        f"karpenter_terminate_instances never returns GONE for {provider_id}, "
        f"after {GONE_WITHIN_SECONDS:g} s it still is {answer}"
    )


async def booted_node(
    world: ProviderWorld, subject: ConformanceSubject, provider_id: str
) -> NodeView:
    """Return the Node of an instance once it has booted; skip if no Node can be observed."""
    deadline = world.clock.monotonic() + GONE_WITHIN_SECONDS
    while world.clock.monotonic() < deadline:
        if subject.node_manifest is not None:
            manifest = subject.node_manifest(world.plugins[subject.name], provider_id)
            if manifest is not None:
                return await world.nodes.create(manifest)
        for node in world.nodes().values():
            if node.provider_id == provider_id:
                return node
        if subject.node_manifest is None and not world.nodes():
            break
        await asyncio.sleep(_PAUSE_SECONDS)
        await world.settle()
    if subject.node_manifest is not None:
        pytest.skip(
            f"not shown: for {GONE_WITHIN_SECONDS:g} s node_manifest returns None for {provider_id}"
        )
    if not world.nodes():
        pytest.skip("not shown: no Node can be observed (ConformanceSubject.node_manifest)")
    ids = sorted(node.provider_id for node in world.nodes().values())
    pytest.fail(f"no Node has the provider ID {provider_id} of the outcome; there are {ids}")


def show_node(
    world: ProviderWorld, subject: ConformanceSubject, provider_id: str
) -> NodeView | None:
    """Make the Node of an instance as its kubelet would have it now; None if there is none."""
    if subject.node_manifest is None:
        return None
    manifest = subject.node_manifest(world.plugins[subject.name], provider_id)
    return None if manifest is None else world.nodes.show(manifest)


async def run_tasks(world: ProviderWorld, *, in_trouble: bool = False) -> None:
    """Run each periodic task once, as if its period had passed; in trouble they may raise."""
    for task in world.providers.tasks():
        try:
            await task.run()
        except CloudProviderError:
            if not in_trouble:
                raise


async def direct_call(
    world: ProviderWorld, subject: ConformanceSubject, hook: str, **arguments: object
) -> object:
    """Call a hook in its own thread, without the batches and limits of the façade."""
    caller = world.loaded.caller(hook, subject.name)
    assert caller is not None, f"{hook} is not implemented"
    return await world.executor.run(lambda: caller(**arguments), lane=subject.name)


@contextmanager
def network_forbidden() -> Generator[list[str], None, None]:
    """Collect attempts to use the network or start programs while the context is open."""
    seen: list[str] = []
    _install_hook()
    _WATCHERS.append(seen)
    try:
        yield seen
    finally:
        _WATCHERS.remove(seen)


_WATCHERS: Final[list[list[str]]] = []
_INSTALLED: Final[list[bool]] = []


def _install_hook() -> None:
    """Audit hooks stay for the life of the process, so there is one, idle most of the time."""
    if not _INSTALLED:
        _INSTALLED.append(True)
        sys.addaudithook(_note)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _WATCHERS and event in _FORBIDDEN_EVENTS:
        for seen in _WATCHERS:
            seen.append(f"{event} {arguments[1:] or arguments}")
