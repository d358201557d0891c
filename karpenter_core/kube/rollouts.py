"""Reads the rollout of one Deployment from the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.rollouts import read_rollout

if TYPE_CHECKING:
    from karpenter_core.api.rollouts import RolloutView
    from karpenter_core.kube.api import ClusterApis

__all__ = ["fetch_rollout"]


async def fetch_rollout(apis: ClusterApis, namespace: str, name: str) -> RolloutView:
    """Return the rollout of a Deployment as it is now.

    Raises:
        NotFoundError: there is no such Deployment.
        ApiError: it could not be read.
        BadInputError: its answer cannot be parsed.
    """
    api = apis.api_for(DEPLOYMENTS)
    return read_rollout(await api.get(DEPLOYMENTS, name, namespace=namespace))
