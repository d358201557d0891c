"""Rules of checks, periodic tasks and restarts of the plug-in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from karpenter_core.provider.contract import Severity
from karpenter_core.testing.conformance import rule_steps
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_090_checks_come_with_remedies",
    "test_pc_091_an_unreachable_cloud_is_a_finding",
    "test_pc_092_tasks_can_be_run",
    "test_pc_093_stops_cleanly_and_starts_again",
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
    """MUST: after karpenter_stop the same object can be started again; no metric of it is left."""
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

    asyncio.run(scenario())
