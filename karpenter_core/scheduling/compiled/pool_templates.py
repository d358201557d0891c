"""Reads the node template of a NodePool: labels, taints and requirements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import INITIALIZED, NODE_POOL, REGISTERED, node_class_label
from karpenter_core.api.records import Taint
from karpenter_core.api.spot_share import read_spot_share
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodepool import NodePool

__all__ = ["SIMULATION_LABELS", "PoolTemplate", "read_pool_template"]

SIMULATION_LABELS: Final = frozenset({REGISTERED, INITIALIZED})
"""Labels that every node gets in time: daemons may select on them, claims never ask for them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolTemplate:
    """The template that all nodes of one NodePool have.

    `requirements` contain the labels. `unreadable_reason` says why the template's own requirements
    cannot be read, and is empty where they can; such a pool launches nothing.
    """

    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    requirements: Requirements
    unreadable_reason: str
    spot_share: float | None


def read_pool_template(pool: NodePool, *, aliases: Mapping[str, str]) -> PoolTemplate:
    """Read the template of a NodePool; `aliases` are deprecated label keys and their new ones."""
    template = pool.spec.template
    reference = template.spec.node_class_ref
    labels = {
        **template.metadata.labels,
        NODE_POOL: pool.name,
        node_class_label(reference.group, reference.kind): reference.name,
    }
    unreadable_reason = ""
    try:
        own = Requirements.from_specs(template.spec.requirements, aliases=aliases)
    except BadInputError as error:
        unreadable_reason = str(error)
        own = Requirements()
    share: float | None = None
    try:
        share = read_spot_share(pool)
    except BadInputError as error:
        unreadable_reason = unreadable_reason or str(error)
    return PoolTemplate(
        labels=labels,
        taints=tuple(
            Taint(key=spec.key, effect=spec.effect, value=spec.value)
            for spec in template.spec.taints
        ),
        requirements=own.merge(Requirements.from_labels(labels, aliases=aliases)).add(
            *(Requirement.of(key, "In", ("true",)) for key in sorted(SIMULATION_LABELS))
        ),
        unreadable_reason=unreadable_reason,
        spot_share=share,
    )
