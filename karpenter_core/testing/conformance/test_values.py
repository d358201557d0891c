"""Rules of values: amounts and units of the catalogue, keys of a status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.provider.host.status_check import status_problems
from karpenter_core.testing.conformance import rule_steps

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_017_a_resolution_sets_known_status_fields",
    "test_pc_028_amounts_are_whole_numbers_in_fixed_units",
]


def test_pc_017_a_resolution_sets_known_status_fields(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: karpenter_resolve_node_class sets fields of the NodeClass status only."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_resolve_node_class")
        resolution = await world.providers.resolve_node_class(subject.node_class)
        problems = status_problems(subject.node_class, resolution.status)
        assert not problems, (
            f"{'; '.join(problem.message for problem in problems)}: the API server drops what the definition does not have"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_028_amounts_are_whole_numbers_in_fixed_units(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: amounts are whole numbers, not negative, in fixed units, of known resources."""

    async def scenario(world: ProviderWorld) -> None:
        types = await rule_steps.catalogue(world, subject, "PC-028")
        assert types, "karpenter_list_instance_types lists nothing for the subject's NodeClass"

    rule_steps.run_rule(subject, tmp_path, scenario)
