"""A process that only observes resolves EC2NodeClasses without trying launches out."""

from __future__ import annotations

import asyncio

from karpenter_core.api.conditions import READY, is_true
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_aws.testing import subject_on

TRIALS = ("CreateLaunchTemplate", "CreateFleet", "RunInstances")


def test_an_observer_makes_no_launch_template_and_needs_no_permission_to_launch(
    few_types_aws, few_types_shared, tmp_path
):
    """A dry run makes a launch template, and its refusal would make the EC2NodeClass not ready."""
    subject = subject_on(few_types_aws, shared=few_types_shared)

    async def resolve(*, observing):
        few_types_aws.calls.clear()
        async with ProviderWorld(
            plugins={"aws": subject.make()},
            cache_folder=tmp_path / str(observing),
            settings=subject.settings,
            observing=observing,
        ) as world:
            node_class = await world.resolved(subject.node_class)
            return node_class, [few_types_aws.calls.count(name) > 0 for name in TRIALS]

    node_class, tried = asyncio.run(resolve(observing=True))
    assert is_true(node_class.status.conditions, READY)
    assert tried == [False, False, False]

    _, tried = asyncio.run(resolve(observing=False))
    assert tried == [True, True, True]
