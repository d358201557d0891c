"""Plans a static NodePool's claim: the template, no pods or instance types.

The provider chooses among all instance types of the template at launch, as for a claim that a user
creates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import WELL_KNOWN
from karpenter_core.scheduling.compiled.pool_templates import SIMULATION_LABELS, read_pool_template
from karpenter_core.scheduling.offerings import compatible_offerings
from karpenter_core.scheduling.problem import CheapestOffering, PlannedNodeClaim
from karpenter_core.scheduling.requirements import is_restricted_label
from karpenter_core.scheduling.resources import element_max

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.scheduling.requirements import Requirements
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["plan_static_claim"]


def plan_static_claim(
    snapshot: Snapshot,
    pool: NodePool,
    *,
    aliases: Mapping[str, str],
    well_known: AbstractSet[str],
    solve: SolveOptions,
) -> PlannedNodeClaim | None:
    """Return the claim that every node of a static pool gets; None if nothing can be launched now.

    `well_known` are the providers' labels. Nothing can be launched while the instance types of the
    pool are unknown, and while none that its template allows is available: the claim would fail and
    be created again and again.
    """
    template = read_pool_template(pool, aliases=aliases)
    catalogue = snapshot.catalogues.get(pool.name)
    if template.unreadable_reason or catalogue is None:
        return None
    known = WELL_KNOWN | well_known
    requirements = template.requirements.without(SIMULATION_LABELS)
    types = [it for it in catalogue.instance_types if it.requirements.intersects(requirements)]
    cheapest = _cheapest(types, requirements, known, solve)
    if cheapest is None:
        return None
    labels = dict(template.labels)
    for key in sorted(requirements):
        if key not in known and not is_restricted_label(key):
            value = requirements.get(key).any_value()
            if value:
                labels[key] = value
    return PlannedNodeClaim(
        pool=pool.name,
        pods=(),
        requirements=tuple(requirements.get(key) for key in sorted(requirements)),
        instance_types=(),
        requests={},
        cheapest=cheapest,
        labels=labels,
        capacity_max=element_max(it.capacity for it in types),
    )


def _cheapest(
    types: list[InstanceType],
    requirements: Requirements,
    well_known: AbstractSet[str],
    solve: SolveOptions,
) -> CheapestOffering | None:
    """Return the cheapest available offering, in the reporting currency.

    An offering without an exchange rate counts as free, and is chosen last.
    """
    rates = {solve.currency: 1.0, **solve.exchange_rates}
    offers = (
        (offering.price.currency not in rates, it.name, offering)
        for it in types
        for offering in compatible_offerings(it, requirements, well_known=well_known)
    )
    best = min(
        offers,
        key=lambda offer: (
            offer[0],
            offer[2].price.amount * rates.get(offer[2].price.currency, 0.0),
            offer[1],
            offer[2].zone,
            offer[2].capacity_type,
        ),
        default=None,
    )
    if best is None:
        return None
    _, name, offering = best
    return CheapestOffering(
        instance_type=name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price_per_hour=offering.price.amount * rates.get(offering.price.currency, 0.0),
    )
