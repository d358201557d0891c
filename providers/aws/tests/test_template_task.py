"""The task `launch-templates` takes in the templates of an earlier process once."""

from __future__ import annotations

import asyncio

from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_aws.testing import subject_on


def test_templates_of_an_earlier_process_are_listed_by_the_first_run_alone(
    few_types_aws, few_types_shared, tmp_path
):
    """Each listing is a call, and the task runs all day."""
    subject = subject_on(few_types_aws, shared=few_types_shared)
    plugin = subject.make()

    async def scenario():
        async with ProviderWorld(
            plugins={"aws": plugin}, cache_folder=tmp_path, settings=subject.settings
        ):
            (task,) = [
                each for each in plugin.karpenter_declare_tasks() if each.name == "launch-templates"
            ]
            counts = []
            for _ in range(3):
                await asyncio.to_thread(task.run)
                counts.append(few_types_aws.calls.count("DescribeLaunchTemplates"))
            return counts

    assert asyncio.run(scenario()) == [1, 1, 1]
