"""Builds a scheduling problem from objects, as the controller does.

The code that serves a live cluster builds it. Objects are folded into the state as if a watch had
reported them, and catalogues come from the providers. From here on there is no difference between
objects from files and from a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from karpenter_core.kube.wire.kind_groups import KindGroup

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import TopologySpread
    from karpenter_core.cli.catalogues import LocatedPool
    from karpenter_core.provider.contract import LabelClasses
    from karpenter_core.scheduling.problem import Catalogue, SolveOptions
    from karpenter_core.state.builder import StateBuilder
    from karpenter_core.state.events import StateObject
    from karpenter_core.state.launch_limits import LaunchLimits
    from karpenter_core.state.provisioning_input import ProblemSettings, ProvisioningInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "Catalogues",
    "ClusterInput",
    "LocatedObject",
    "PlanningContext",
    "build_cluster",
    "input_of_state",
]


class Catalogues(Protocol):
    """Lists the instance types of NodePools: from providers, or from a snapshot."""

    def owners(self, pools: Iterable[NodePool]) -> dict[tuple[str, str], str]:
        """Return the provider of each NodeClass kind, by group and kind."""
        ...

    async def catalogues(
        self,
        pools: Sequence[LocatedPool],
        node_classes: Iterable[NodeClass],
        *,
        is_lenient: bool,
    ) -> tuple[dict[str, Catalogue], dict[str, str]]:
        """Return the catalogue of each NodePool by name and, if lenient, the errors of others."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """The time, options and settings by which a cluster is planned."""

    now: datetime
    options: SolveOptions
    labels: LabelClasses
    groups: Collection[KindGroup]
    """The kinds that are acted on beside the usual ones."""
    default_spread: tuple[TopologySpread, ...]
    priority_cutoff: int
    commitments: tuple[Commitment, ...]
    launch_limits: LaunchLimits


class LocatedObject(NamedTuple):
    """An object, and the place where it was read, for messages."""

    where: str
    found: StateObject
    is_implied: bool = False
    """The object was not written by anybody: a cluster would create it for another object."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ClusterInput:
    """A scheduling problem, and the options to solve it with.

    It has no `repr`: asyncio formats the result of a task several times, and this one is large.
    """

    input: ProvisioningInput
    snapshot: Snapshot
    options: SolveOptions
    now: datetime
    problem_settings: ProblemSettings
    builder: StateBuilder | None = None
    """The state behind `snapshot`, which what-ifs fold changes into; None in a controller: it is its own."""
    unusable_pools: Mapping[str, str] = field(default_factory=dict[str, str])
    """NodePools that cannot launch nodes now, with the reasons."""
    notes: tuple[str, ...] = ()
    """Objects that were left out and assumptions, as notes for people."""

    @property
    def folded_state(self) -> StateBuilder:
        """The state to fold changes into; what folds into it uses the input up."""
        if self.builder is None:
            raise ValueError("the state belongs to a controller: nothing may be folded into it")
        return self.builder


async def build_cluster(
    objects: Sequence[LocatedObject],
    catalogue_source: Catalogues,
    context: PlanningContext,
    *,
    is_lenient: bool = False,
    notes: Sequence[str] = (),
) -> ClusterInput:
    """List the catalogues, and build the problem.

    In lenient mode NodePools whose catalogue cannot be listed are left out.

    Raises:
        BadInputError: a NodePool refers to an unknown NodeClass.
        CloudProviderError: a provider cannot list its instance types.
    """
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.builder import StateBuilder
    from karpenter_core.state.events import (
        CataloguePublished,
        InformersSynced,
        ObjectObserved,
        TimePassed,
    )

    pools = [
        (placed.where, placed.found) for placed in objects if isinstance(placed.found, NodePool)
    ]
    classes = [placed.found for placed in objects if isinstance(placed.found, NodeClass)]
    catalogues, problems = await catalogue_source.catalogues(pools, classes, is_lenient=is_lenient)
    overlays = KindGroup.OVERLAYS in context.groups
    builder = StateBuilder(catalogue_source.owners(pool for _, pool in pools), overlays=overlays)
    builder.apply_event(TimePassed(context.now))
    for placed in objects:
        builder.apply_event(ObjectObserved(placed.found))
    for pool, catalogue in sorted(catalogues.items()):
        builder.apply_event(CataloguePublished(pool, catalogue))
    builder.apply_event(InformersSynced())
    return input_of_state(
        builder,
        context,
        problems=problems,
        notes=notes,
    )


def input_of_state(
    builder: StateBuilder,
    context: PlanningContext,
    *,
    problems: Mapping[str, str],
    notes: Sequence[str] = (),
) -> ClusterInput:
    """Return the problem of a state whose catalogues are listed; declares the pods of its buffers.

    `problems` are NodePools whose catalogue cannot be listed, with the errors.
    """
    from karpenter_core.cli.plan_notes import (
        commitment_notes,
        plan_notes,
        prediction_notes,
        quota_notes,
        schedule_notes,
        spot_share_notes,
    )
    from karpenter_core.operator.problem_settings import problem_settings
    from karpenter_core.state.provisioning_input import build_provisioning_input
    from karpenter_core.state.unusable_pools import unusable_pools

    buffer_problems = _declare_buffers(builder)
    overlay_notes = (
        _apply_overlays(builder, context.labels) if KindGroup.OVERLAYS in context.groups else ()
    )
    snapshot = builder.snapshot()
    found_settings = problem_settings(
        context.labels,
        context.groups,
        default_spread=context.default_spread,
        priority_cutoff=context.priority_cutoff,
        commitments=context.commitments,
        launch_limits=context.launch_limits,
    )
    problem_input = build_provisioning_input(
        snapshot, now=context.now, problem_settings=found_settings
    )
    return ClusterInput(
        input=problem_input,
        snapshot=snapshot,
        options=context.options,
        now=context.now,
        problem_settings=found_settings,
        builder=builder,
        unusable_pools={
            **unusable_pools(snapshot, problems),
            **{name: refusal.message for name, refusal in problem_input.refused_pools.items()},
        },
        notes=(
            *notes,
            *overlay_notes,
            *plan_notes(snapshot),
            *quota_notes(problem_input.problem.quotas),
            *spot_share_notes(problem_input.problem),
            *schedule_notes(snapshot),
            *commitment_notes(problem_input.problem),
            *prediction_notes(snapshot, context.now),
            *(f'buffer "{key}" has no room: {why}' for key, why in buffer_problems.items()),
        ),
    )


def _declare_buffers(builder: StateBuilder) -> Mapping[str, str]:
    """Have the pods of CapacityBuffers in the state; return the buffers without room, with reasons."""
    from karpenter_core.lifecycle.capacity_buffer.declaration import buffer_declarations
    from karpenter_core.state.events import VirtualPodsDeclared

    snapshot = builder.snapshot()
    declarations, problems = buffer_declarations(snapshot)
    for declaration in declarations:
        builder.apply_event(declaration)
    for source in snapshot.virtual_pods.keys() - {each.source for each in declarations}:
        builder.apply_event(VirtualPodsDeclared(source=source, pods=None))
    return problems


def _apply_overlays(builder: StateBuilder, labels: LabelClasses) -> tuple[str, ...]:
    """Evaluate the NodeOverlays of the state; return notes about those that are not applied."""
    from karpenter_core.lifecycle.nodeoverlay.evaluation import evaluate_overlays, listed_pools
    from karpenter_core.operator.label_rules import label_rules
    from karpenter_core.state.events import OverlaysEvaluated

    snapshot = builder.snapshot()
    evaluation = evaluate_overlays(
        snapshot.node_overlays.values(), listed_pools(snapshot), rules=label_rules(labels)
    )
    builder.apply_event(OverlaysEvaluated(evaluation.store))
    problems = {name: "; ".join(errors) for name, errors in evaluation.errors.items()}
    problems |= {
        name: f"it conflicts with another one of its weight: {conflict}"
        for name, conflict in evaluation.conflicts.items()
    }
    return tuple(
        f'NodeOverlay "{name}" is not applied: {problem}'
        for name, problem in sorted(problems.items())
    )
