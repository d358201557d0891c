"""A process that only observes resolves ECSNodeClasses without trying launches out."""

from __future__ import annotations

import pytest

from karpenter_core.api.conditions import READY, is_true
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_alibabacloud.testing import node_class_for, settings_for, subject_on


@pytest.mark.parametrize("observing", [True, False])
async def test_an_observer_needs_no_permission_to_launch(few_types_cloud, tmp_path, observing):
    """A dry run that is refused would make the ECSNodeClass not ready."""
    async with ProviderWorld(
        plugins={"alibabacloud": subject_on(few_types_cloud).make()},
        cache_folder=tmp_path,
        settings=settings_for(few_types_cloud),
        observing=observing,
    ) as world:
        node_class = await world.resolved(node_class_for(few_types_cloud))

    assert is_true(node_class.status.conditions, READY)
    assert (few_types_cloud.calls.count("RunInstances") == 0) == observing
