"""Fields of pods that say on which nodes they may run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_core.testing.cluster import Object

__all__ = ["EACH_ON_ITS_OWN"]

EACH_ON_ITS_OWN: Final[Object] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
}
"""Of pods with the label app=web: as many nodes as pods."""
