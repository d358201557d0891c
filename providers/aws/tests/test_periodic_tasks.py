"""Tests the periodic tasks of the provider, and which of them only the leader runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_aws.testing import subject_on

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def test_every_process_reads_its_own_facts_and_the_leader_runs_the_other_tasks(
    few_types_aws, few_types_shared, tmp_path
):
    subject = subject_on(few_types_aws, shared=few_types_shared)

    async def tasks():
        world = ProviderWorld(
            plugins={"aws": subject.make()}, cache_folder=tmp_path, settings=subject.settings
        )
        async with world:
            return world.providers.tasks()

    assert {task.name: (task.period, task.leader_only) for task in asyncio.run(tasks())} == {
        "instance-types": (12 * HOUR, False),
        "prices": (12 * HOUR, False),
        "images": (30 * MINUTE, True),
        "launch-templates": (MINUTE, True),
        "instance-profiles": (30 * MINUTE, True),
        "instance-status": (MINUTE, True),
        "capacity-block-expiry": (MINUTE, True),
        "capacity-types": (MINUTE, True),
    }
