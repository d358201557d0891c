"""Compiles launch quotas to the shares that nodes of NodePools may take.

A quota becomes limits of every NodePool whose nodes it may count, one for each resource, under a
name of its own (`quota_limit`). Unlike the limits of the NodePool's spec they are shared: a claim of
one NodePool takes from all. Labels that are not decided yet count as those that the quota selects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from karpenter_core.api.quantities import LARGEST_AMOUNT, format_amount
from karpenter_core.scheduling.compiled.bitsets import bits_of_mask

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from karpenter_core.scheduling.compiled.catalogue import CompiledCatalogue
    from karpenter_core.scheduling.problem import LaunchQuota
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["QuotaLine", "quota_lines"]

_REFUSED = "launches"
"""The resource of the line that a quota with a refusal has: every node takes too much of it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuotaLine:
    """The limit of one resource in one quota."""

    quota: LaunchQuota
    resource: str

    @property
    def name(self) -> str:
        """Name among the limits of a NodePool; no resource has such a name."""
        return f"{self.resource} of {self.quota.name}"

    @property
    def is_refusal(self) -> bool:
        """Whether no node may be launched at all."""
        return self.resource == _REFUSED

    @property
    def limit(self) -> int:
        """The amount that all nodes together may have."""
        return self.quota.limits.get(self.resource, 0)

    @property
    def remaining(self) -> int:
        """The rest of the limit; negative where it is exceeded."""
        used = self.quota.used.get(self.resource, 0)
        return max(self.limit - used, -LARGEST_AMOUNT)

    def shortage(self, remaining: int) -> str:
        """Return the sentence that says how little of the limit is left."""
        if self.is_refusal:
            return self.quota.refusal
        left = format_amount(self.resource, max(remaining, 0))
        return (
            f"{self.resource}: {left} of {format_amount(self.resource, self.limit)} left in "
            f"{self.quota.name}"
        )

    def counted_rows(
        self,
        catalogue: CompiledCatalogue,
        template: Requirements,
        requirements: Requirements,
        well_known: Container[str],
    ) -> int:
        """Return the rows of a claim that the quota may count.

        `template` are the requirements of the NodePool, `requirements` those of the claim.
        """
        selected = self.quota.requirements
        undecided = {key for key in selected if key in well_known or catalogue.defines(key)}
        if not all(
            own.compatible(selected, allow_undefined=undecided) for own in (template, requirements)
        ):
            return 0
        merged = requirements.merge(selected)
        return catalogue.matching(merged) & bits_of_mask(
            catalogue.highest_prices(merged, well_known) >= 0
        )


def quota_lines(quotas: Iterable[LaunchQuota]) -> tuple[QuotaLine, ...]:
    """Return the limits of all quotas, by name."""
    return tuple(
        QuotaLine(quota=quota, resource=resource)
        for quota in sorted(quotas, key=lambda quota: quota.name)
        for resource in ((_REFUSED,) if quota.refusal else sorted(quota.limits))
    )
