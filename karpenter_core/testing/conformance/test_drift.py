"""Rules of drift: which changes a provider reports, and which it does not."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from karpenter_core.errors import NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding
from karpenter_core.testing.conformance import rule_steps

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_055_a_fresh_instance_has_not_drifted",
    "test_pc_056_a_changed_instance_has_drifted",
    "test_pc_057_a_changed_field_changes_the_hash",
    "test_pc_058_a_gone_instance_is_no_drift",
]

_HOOK = "karpenter_detect_drift"
_PAUSE_SECONDS = 0.02


def _claim(request: LaunchRequest, outcome: LaunchedInstance) -> NodeClaim:
    """Return the claim as the core writes it after the launch."""
    claim = request.node_claim
    status = claim.status.model_copy(
        update={"provider_id": outcome.provider_id, "image_id": outcome.image_id}
    )
    labels = {**claim.metadata.labels, **outcome.labels}
    metadata = claim.metadata.model_copy(update={"labels": labels})
    return claim.model_copy(update={"status": status, "metadata": metadata})


def test_pc_055_a_fresh_instance_has_not_drifted(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: an instance just launched for an unchanged NodeClass has not drifted."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, _HOOK)
        request, outcome = await rule_steps.launch_new_claim(world, subject, "fresh")
        found = await world.providers.detect_drift([_claim(request, outcome)], request.node_class)
        assert found == (None,), (
            f"an instance just launched is drifted: {found[0]!r}; nodes would be replaced for ever"
        )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_056_a_changed_instance_has_drifted(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: an instance that no longer matches its NodeClass has drifted, with a reason."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, _HOOK)
        if subject.drift is None:
            pytest.skip("not shown: the subject cannot change instances (ConformanceSubject.drift)")
        pairs = [
            await rule_steps.launch_new_claim(world, subject, name) for name in ("same", "changed")
        ]
        subject.drift(world.plugins[subject.name], pairs[1][1].provider_id)
        for _, outcome in pairs:
            rule_steps.show_node(world, subject, outcome.provider_id)
        claims = [_claim(request, outcome) for request, outcome in pairs]
        deadline = world.clock.monotonic() + rule_steps.GONE_WITHIN_SECONDS
        same, changed = await world.providers.detect_drift(claims, pairs[0][0].node_class)
        while changed is None and world.clock.monotonic() < deadline:  # the cloud shows it late
            await asyncio.sleep(_PAUSE_SECONDS)
            same, changed = await world.providers.detect_drift(claims, pairs[0][0].node_class)
        assert isinstance(changed, DriftFinding), (
            f"the instance was changed, and karpenter_detect_drift returns {changed!r}"
        )
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", changed.reason), (
            f'the reason "{changed.reason}" is not in CamelCase'
        )
        assert same is None, f"another claim's instance was changed, and this one is {same!r}"
        for request, outcome in pairs:
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_057_a_changed_field_changes_the_hash(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: changing a field that the hash covers changes the hash."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_hash_node_class")
        if subject.changed_node_class is None:
            pytest.skip(
                "not shown: the subject has no second NodeClass (ConformanceSubject.changed_node_class)"
            )
        before = await world.providers.hash_node_class(subject.node_class)
        after = await world.providers.hash_node_class(subject.changed_node_class)
        assert before is not None and after is not None, "karpenter_hash_node_class returned None"  # noqa: PT018
        assert before.value != after.value, "two NodeClasses that differ have the same hash"
        assert before.version == after.version, "the version tells of the algorithm, not of fields"

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_058_a_gone_instance_is_no_drift(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: an instance that is gone is None or NodeClaimNotFoundError, never a drift."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, _HOOK)
        request, outcome = await rule_steps.launch_new_claim(world, subject, "left")
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
        (found,) = await world.providers.detect_drift(
            [_claim(request, outcome)], request.node_class
        )
        assert found is None or isinstance(found, NodeClaimNotFoundError), (
            f"the instance is gone, and karpenter_detect_drift returns {found!r}"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)
