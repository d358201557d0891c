"""Reads what pods ask for beside resources, once for equal constraints.

Sizes and labels differ among pods far more than constraints do: hundreds of Deployments ask for
nothing but resources. Constraints are compared as bytes, which costs less than reading them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from karpenter_core.api.labels import ALIASES, WELL_KNOWN
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.compiled.relaxation import read_relaxation_steps
from karpenter_core.scheduling.pod_selectors import opts_out, selector_error
from karpenter_core.scheduling.problem import PoolConstraint, PoolRejection
from karpenter_core.scheduling.problem import PreferencePolicy as Preferences

if TYPE_CHECKING:
    from karpenter_core.api.records import PodShape
    from karpenter_core.scheduling.compiled.relaxation import RelaxationStep
    from karpenter_core.scheduling.compiled.topology import TopologyGroup, TopologyGroups
    from karpenter_core.scheduling.problem import SchedulingProblem, SolveOptions

__all__ = ["MOST_RESOURCES", "PodConstraints", "PodConstraintsReader"]

MOST_RESOURCES: Final = 100
"""Number of resources that a pod may request: each is a line in all tables of amounts."""
_ENCODER: Final = msgspec.msgpack.Encoder()


@dataclass(slots=True, kw_only=True, eq=False)
class PodConstraints:
    """A shape's constraints beside resources: steps with the groups of each, or a refusal.

    `number` is the same for equal constraints.
    """

    number: int = -1
    steps: tuple[RelaxationStep, ...] = ()
    owned: tuple[tuple[TopologyGroup, ...], ...] = ()
    inverse: tuple[TopologyGroup, ...] = ()
    blocked: PoolRejection | None


@final
class PodConstraintsReader:
    """Reads shapes; their topology groups go to `groups`."""

    def __init__(
        self,
        problem: SchedulingProblem,
        options: SolveOptions,
        groups: TopologyGroups,
        *,
        with_devices: bool,
    ) -> None:
        self._with_devices: Final = with_devices
        self._aliases: Final = {**ALIASES, **problem.aliases}
        self._well_known: Final = WELL_KNOWN | problem.well_known
        self._respect: Final = options.preferences is Preferences.RESPECT
        self._softens: Final = any(
            taint.effect == "PreferNoSchedule"
            for pool in problem.pools
            for taint in pool.spec.template.spec.taints
        )
        self._groups: Final = groups
        self._drafts: Final = dict[bytes, PodConstraints]()
        self._numbers: Final = dict[object, int]()

    def read(self, shape: PodShape) -> PodConstraints:
        """Read one shape; of those that differ in labels and resources only the first."""
        constraints = (
            shape.namespace,
            shape.node_selector,
            shape.required_node_terms,
            shape.preferred_node_terms,
            shape.tolerations,
            shape.topology_spread,
            shape.pod_affinity,
            shape.preferred_pod_affinity,
            shape.pod_anti_affinity,
            shape.preferred_pod_anti_affinity,
            shape.resource_claims,
            shape.labels if any(s.match_label_keys for s in shape.topology_spread) else None,
            max(len(shape.requests) - MOST_RESOURCES, 0),
        )
        text = _ENCODER.encode(constraints)  # a tenth of the time that hashing them takes
        cached = self._drafts.get(text)
        if cached is None:
            cached = self._drafts[text] = self._read(shape)
            cached.number = self._numbers.setdefault(_identity(shape, cached), len(self._numbers))
        return cached

    def _read(self, shape: PodShape) -> PodConstraints:
        blocked = self._invalid(shape)
        if blocked is not None:
            return PodConstraints(blocked=blocked)
        try:
            steps = read_relaxation_steps(
                shape,
                aliases=self._aliases,
                respect_preferences=self._respect,
                softens_taints=self._softens,
            )
        except BadInputError as error:
            return PodConstraints(
                blocked=PoolRejection(constraint=PoolConstraint.REQUIREMENT, detail=str(error))
            )
        return PodConstraints(
            steps=steps,
            owned=tuple(
                tuple(dict.fromkeys(owned)) for owned in self._groups.of_steps(shape, steps)
            ),
            inverse=self._groups.inverse_of(shape),
            blocked=None if self._with_devices else _unsupported_feature(shape),
        )

    def _invalid(self, shape: PodShape) -> PoolRejection | None:
        """Return why no node can meet a pod's node selector or node affinity, or may have the pod."""
        if len(shape.requests) > MOST_RESOURCES:
            return PoolRejection(
                constraint=PoolConstraint.RESOURCE,
                detail=f"the pod requests {len(shape.requests)} resources, more than {MOST_RESOURCES}",
            )
        terms = shape.required_node_terms
        if terms and not any(term.match_expressions or term.match_fields for term in terms):
            return _rejection("a node selector term without expressions matches no node")
        if opts_out(shape, aliases=self._aliases):
            return _rejection("the pod asks for nodes outside of every NodePool")
        error = selector_error(shape, well_known=self._well_known, aliases=self._aliases)
        return _rejection(error) if error else None


def _identity(shape: PodShape, constraints: PodConstraints) -> object:
    """Return the key by which two constraints are the same to a placement."""
    blocked = constraints.blocked
    return (
        tuple(sorted(shape.node_selector.items())),
        shape.required_node_terms,
        shape.preferred_node_terms,
        shape.tolerations,
        constraints.owned,
        constraints.inverse,
        None if blocked is None else (blocked.constraint, blocked.detail),
    )


def _rejection(detail: str) -> PoolRejection:
    return PoolRejection(constraint=PoolConstraint.REQUIREMENT, detail=detail)


def _unsupported_feature(shape: PodShape) -> PoolRejection | None:
    """Refuse what is not simulated: dynamic resource allocation (upstream's default too)."""
    if not shape.resource_claims:
        return None
    return PoolRejection(
        constraint=PoolConstraint.DEVICE,
        detail="pod has Dynamic Resource Allocation requirements that are not yet supported "
        f"(resource claim {', '.join(shape.resource_claims)})",
        remedy="remove the resource claims from the pod, or set --ignore-dra-requests=false",
    )
