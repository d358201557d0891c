"""Defines the fields of a Deployment's rollout that decide on a restart."""

from __future__ import annotations

from typing import Final

from karpenter_core.api.records import LabelSelector, Record

__all__ = ["RESTARTED_AT", "RolloutView"]

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
"""Annotation of a pod template that `kubectl rollout restart` sets."""


class RolloutView(Record, frozen=True, kw_only=True, eq=False):
    """The strategy and the progress of one Deployment.

    `surge` and `unavailable` are pods beyond and below the wanted number that a rollout may have: the
    percentages of the strategy are resolved, and both are zero for the strategy Recreate.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    selector: LabelSelector
    replicas: int
    strategy: str
    surge: int
    unavailable: int
    paused: bool = False
    is_deleting: bool = False
    is_settled: bool
    """Whether every pod is of the newest template and available, and no other is left."""
    is_stuck: bool = False
    """Whether the rollout exceeded its progress deadline."""

    @property
    def key(self) -> str:
        """`namespace/name`, as users write it."""
        return f"{self.namespace}/{self.name}"
