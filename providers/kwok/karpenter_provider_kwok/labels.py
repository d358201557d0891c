"""Labels of kwok's nodes, as existing users select by them."""

from __future__ import annotations

from typing import Final

from karpenter_provider_kwok.api import GROUP

INSTANCE_SIZE: Final = f"{GROUP}/instance-size"
INSTANCE_FAMILY: Final = f"{GROUP}/instance-family"
INSTANCE_CPU: Final = f"{GROUP}/instance-cpu"
INSTANCE_MEMORY: Final = f"{GROUP}/instance-memory"
INSTANCE_LABELS: Final = frozenset({INSTANCE_SIZE, INSTANCE_FAMILY, INSTANCE_CPU, INSTANCE_MEMORY})

KWOK_NODE: Final = "kwok.x-k8s.io/node"
"""Label and annotation by which kwok knows the nodes it plays the kubelet of."""
KWOK_NODE_VALUE: Final = "fake"
KWOK_NODE_WITHOUT_KUBELET: Final = "none"
"""Another value than the one that kwok and the embedded cluster play a kubelet for."""
KWOK_PARTITION: Final = "kwok-partition"
"""Upstream's installation starts kwok with a selector on this label."""
KWOK_PARTITION_VALUE: Final = "a"

PROVIDER_ID_PREFIX: Final = "kwok://"
