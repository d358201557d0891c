"""Tags that say whose a machine is, and for what it was launched.

A provider keeps nothing about instances in the process, so these tags are its memory: a machine
without our cluster's tag is not ours, and one that has it must be listed, claim or no claim. Clouds
differ in which characters a key may have, so the keys are a provider's choice, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.labels import NODE_POOL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.contract import LaunchRequest

__all__ = ["Ownership", "TagKeys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagKeys:
    """Under which keys it is written; an empty one is not written."""

    cluster: str = "karpenter.sh/cluster"
    node_claim: str = "karpenter.sh/nodeclaim"
    token: str = "karpenter.sh/nodeclaim-uid"  # noqa: S105 - a key, no secret
    node_pool: str = NODE_POOL
    node_class: str = "karpenter.sh/nodeclass"

    def taken(self, user_tags: Mapping[str, str]) -> tuple[str, ...]:
        """Return the keys of a user's tags that are ours: what a NodeClass must refuse."""
        ours = {self.cluster, self.node_claim, self.token, self.node_pool, self.node_class}
        return tuple(sorted(ours & user_tags.keys()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What is written on a machine, or on what is made beside machines.

    Empty fields are not written: what serves many claims (a launch template) names none.

    Raises:
        ValueError: the cluster has no name, and two clusters would own each other's machines.
    """

    cluster: str
    node_claim: str = ""
    token: str = ""
    node_pool: str = ""
    node_class: str = ""

    def __post_init__(self) -> None:
        """Refuse a cluster without a name."""
        if not self.cluster:
            message = "machines cannot be told from another cluster's: the cluster has no name"
            raise ValueError(message)

    @classmethod
    def of(cls, request: LaunchRequest, *, cluster: str) -> Ownership:
        """Return whose the machine of a launch will be."""
        claim = request.node_claim
        return cls(
            cluster=cluster,
            node_claim=claim.name,
            token=request.token,
            node_pool=claim.metadata.labels.get(NODE_POOL, ""),
            node_class=request.node_class.name,
        )

    @classmethod
    def from_tags(
        cls, tags: Mapping[str, str], *, cluster: str, keys: TagKeys | None = None
    ) -> Ownership | None:
        """Read a machine's tags; None for one that is not this cluster's."""
        keys = keys or TagKeys()
        if not cluster or tags.get(keys.cluster) != cluster:
            return None
        return cls(
            cluster=cluster,
            node_claim=tags.get(keys.node_claim, ""),
            token=tags.get(keys.token, ""),
            node_pool=tags.get(keys.node_pool, ""),
            node_class=tags.get(keys.node_class, ""),
        )

    def to_tags(
        self, user_tags: Mapping[str, str] | None = None, *, keys: TagKeys | None = None
    ) -> dict[str, str]:
        """Return the tags to launch with; what a user set under our keys does not count."""
        keys = keys or TagKeys()
        ours = {
            keys.cluster: self.cluster,
            keys.node_claim: self.node_claim,
            keys.token: self.token,
            keys.node_pool: self.node_pool,
            keys.node_class: self.node_class,
        }
        written = {key: value for key, value in ours.items() if key and value}
        return {**(user_tags or {}), **written}
