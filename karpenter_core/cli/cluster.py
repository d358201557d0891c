"""From objects to a scheduling problem, by the same code that serves a live cluster.

Objects are folded into the state as if a watch had shown them, catalogues come from the providers.
Where the objects are from, files or a cluster, makes no difference from here on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.records import TopologySpread
    from karpenter_core.cli.catalogues import Seller
    from karpenter_core.provider.contract import LabelClasses
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.events import Object
    from karpenter_core.state.problem import Framing, ProvisioningInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Cluster", "PlacedObject", "build_cluster"]


class PlacedObject(NamedTuple):
    """An object, and where it was read, for messages."""

    where: str
    found: Object
    is_implied: bool = False
    """Nobody wrote it: a cluster would have made it of what somebody wrote."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Cluster:
    """What is to be solved, and how.

    Has no `repr`: asyncio writes down the result of a task more than once, and this one is large.
    """

    input: ProvisioningInput
    snapshot: Snapshot
    options: SolveOptions
    now: datetime
    framing: Framing
    unusable_pools: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pools that nothing is bought from now, and why."""
    notes: tuple[str, ...] = ()
    """What was left out or taken for granted; people should know, programs need not."""


async def build_cluster(
    objects: Sequence[PlacedObject],
    seller: Seller,
    *,
    now: datetime,
    options: SolveOptions,
    labels: LabelClasses,
    default_spread: tuple[TopologySpread, ...] = (),
    is_lenient: bool = False,
    notes: Sequence[str] = (),
) -> Cluster:
    """Ask what may be bought, and state the problem.

    A lenient reading goes on without the pools whose catalogue cannot be had.

    Raises:
        BadInputError: a pool refers to a NodeClass that nobody can make anything of.
        CloudProviderError: a provider cannot say what it sells.
    """
    from karpenter_core.api.labels import ALIASES
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.cli.remarks import remarks, unusable_pools
    from karpenter_core.state.builder import StateBuilder
    from karpenter_core.state.events import CataloguePublished, Observed, Synced
    from karpenter_core.state.pod_volumes import VolumesUnsupported
    from karpenter_core.state.problem import Framing, scheduling_problem

    pools = [
        (placed.where, placed.found) for placed in objects if isinstance(placed.found, NodePool)
    ]
    classes = [placed.found for placed in objects if isinstance(placed.found, NodeClass)]
    catalogues, problems = await seller.catalogues(pools, classes, is_lenient=is_lenient)
    builder = StateBuilder(seller.owners(pool for _, pool in pools))
    for placed in objects:
        builder.fold(Observed(placed.found))
    for pool, catalogue in sorted(catalogues.items()):
        builder.fold(CataloguePublished(pool, catalogue))
    builder.fold(Synced())
    snapshot = builder.snapshot()
    framing = Framing(
        well_known=labels.well_known,
        aliases={**ALIASES, **labels.aliases},
        default_spread=default_spread,
        unsupported_volumes=VolumesUnsupported(
            topology_keys=labels.unsupported_topology_keys,
            provisioners=labels.unsupported_provisioners,
        ),
    )
    return Cluster(
        input=scheduling_problem(snapshot, now=now, framing=framing),
        snapshot=snapshot,
        options=options,
        now=now,
        framing=framing,
        unusable_pools=unusable_pools(snapshot, problems),
        notes=(*notes, *remarks(snapshot)),
    )
