"""Rules of checks, periodic tasks and restarts of the plug-in."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

from karpenter_core.provider.contract import Severity
from karpenter_core.provider.host.hooks import HOOKS
from karpenter_core.provider.kit.one_by_one import ItemCallMode, item_call_mode
from karpenter_core.testing.conformance import process_watch, rule_steps
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_090_checks_come_with_remedies",
    "test_pc_091_an_unreachable_cloud_is_a_finding",
    "test_pc_092_tasks_can_be_run",
    "test_pc_093_stops_cleanly_and_starts_again",
    "test_pc_095_coroutines_leave_the_loop_free",
]


def test_pc_090_checks_come_with_remedies(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: karpenter_check does not raise, and every problem has a remedy."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_check")
        for finding in (await world.providers.check())[subject.name]:
            assert finding.severity is not Severity.ERROR, (
                f"nothing is wrong, and karpenter_check finds: {finding.message}"
            )
            assert finding.remedy or finding.severity is Severity.OK, (
                f'the finding "{finding.message}" has no remedy'
            )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_091_an_unreachable_cloud_is_a_finding(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a cloud that cannot be reached is a finding with a remedy, not an exception."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_check")
        with rule_steps.trouble(subject, world, CloudTrouble.OUTAGE):
            findings = (await world.providers.check())[subject.name]
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        assert errors, f"no call reaches the cloud, and karpenter_check finds only {findings}"
        for finding in errors:
            assert finding.remedy, f'the finding "{finding.message}" has no remedy'

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_092_tasks_can_be_run(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: periodic tasks have unique names and a period, and do their work."""

    async def scenario(world: ProviderWorld) -> None:
        tasks = world.providers.tasks()
        if not tasks:
            pytest.skip("does not apply: karpenter_declare_tasks is not implemented")
        names = [task.name for task in tasks]
        assert len(names) == len(set(names)), f"two tasks have one name: {sorted(names)}"
        for task in tasks:
            assert task.period.total_seconds() > 0, f"the task {task.name} has no period"
            await task.run()

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_093_stops_cleanly_and_starts_again(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: after karpenter_stop nothing of the plug-in is left, and it can be started again."""
    rule_steps.skip_unless_started(subject, tmp_path)

    async def families(plugins: dict[str, object]) -> set[str]:
        world = rule_steps.new_world(subject, tmp_path)
        world.plugins = plugins
        async with world:
            if plugins:
                await world.providers.list_instances(subject.name)
        return {family.name for family in world.registry.collect()}

    async def scenario() -> None:
        plugin = subject.make()
        of_the_core = await families({})
        for _ in range(2):
            left = sorted(await families({subject.name: plugin}) - of_the_core)
            assert not left, f"after karpenter_stop these metrics are left: {left}"

    processes = process_watch.child_processes()
    with process_watch.watch_threads() as threads:
        asyncio.run(scenario())
    going = process_watch.left_threads(threads)
    assert not going, f"after karpenter_stop these threads are left: {', '.join(going)}"
    running = process_watch.left_processes(processes)
    assert not running, f"after karpenter_stop these processes are left: {', '.join(running)}"


def test_pc_095_coroutines_leave_the_loop_free(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST NOT: an `async def` hook makes a blocking call; the event loop serves all providers."""

    async def scenario(world: ProviderWorld) -> None:
        plugin = world.plugins[subject.name]
        if not any(_is_coroutine(plugin, hook.name) for hook in HOOKS):
            pytest.skip("does not apply: no hook is an async def")
        request, outcome = await rule_steps.launch_new_claim(world, subject, "free")
        claim = request.node_claim
        status = claim.status.model_copy(update={"provider_id": outcome.provider_id})
        claim = claim.model_copy(update={"status": status})
        ref, providers = claim.spec.node_class_ref, world.providers
        calls: Mapping[str, Callable[[], Awaitable[object]]] = {
            "karpenter_resolve_node_class": lambda: providers.resolve_node_class(
                request.node_class
            ),
            "karpenter_hash_node_class": lambda: providers.hash_node_class(request.node_class),
            "karpenter_list_instance_types": lambda: world.catalogue(subject.node_class),
            "karpenter_launch_instances": lambda: world.launch(request),
            "karpenter_list_instances": lambda: providers.list_instances(subject.name),
            "karpenter_fetch_instances": lambda: providers.fetch(ref, outcome.provider_id),
            "karpenter_detect_drift": lambda: providers.detect_drift([claim], request.node_class),
            "karpenter_poll_interruptions": lambda: providers.poll_interruptions(subject.name),
            "karpenter_check": providers.check,
            "karpenter_terminate_instances": lambda: providers.terminate(ref, outcome.provider_id),
        }
        async with process_watch.watch_loop() as loop:
            for hook, call in calls.items():
                await loop.call(hook, call)
        for hook, function in loop.calls:
            pytest.fail(
                f"{hook} calls {function} on the event loop, where all providers and the core wait for it: "
                "await an asynchronous call, or make the hook a plain function"
            )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def _is_coroutine(plugin: object, hook: str) -> bool:
    function = getattr(plugin, hook, None)
    is_item_coroutine = item_call_mode(function) is ItemCallMode.COROUTINES
    return is_item_coroutine or inspect.iscoroutinefunction(function)
