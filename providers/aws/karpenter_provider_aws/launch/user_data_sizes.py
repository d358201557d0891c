"""Reports the size of user data by a metric and a warning.

The warning comes before EC2 refuses the size. A refusal by EC2 becomes a condition of the
NodeClass.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog
from prometheus_client import Gauge

from karpenter_provider_aws.launch.template_data import USER_DATA_LIMIT_BYTES

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["WARN_FROM_BYTES", "UserDataSizes"]

WARN_FROM_BYTES: Final = 14_745
"""Nine tenths of the limit."""


@final
class UserDataSizes:
    """The size of each NodeClass's user data, as last rendered; callable from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry: Final = registry
        self._gauge: Final = Gauge(
            "karpenter_ec2nodeclasses_userdata_bytes",
            "Size of the user data of an EC2NodeClass before encoding.",
            ["nodeclass"],
            registry=registry,
        )
        self._lock: Final = Lock()
        self._sizes: Final[dict[str, int]] = {}

    def record(self, node_class: str, size_bytes: int) -> None:
        """Note the size; warn when it becomes nine tenths of the limit or more."""
        with self._lock:
            before = self._sizes.get(node_class, 0)
            self._sizes[node_class] = size_bytes
            self._gauge.labels(node_class).set(size_bytes)
        if size_bytes >= WARN_FROM_BYTES > before:
            structlog.get_logger("aws").warning(
                "user data is close to the limit of EC2, or above it",
                node_class=node_class,
                bytes=size_bytes,
                limit_bytes=USER_DATA_LIMIT_BYTES,
            )

    def forget(self, node_class: str) -> None:
        """Take the series of a NodeClass away."""
        with self._lock:
            if self._sizes.pop(node_class, None) is not None:
                self._gauge.remove(node_class)

    def close(self) -> None:
        """Take the metric out of the registry, so that a provider can be started again."""
        self._registry.unregister(self._gauge)
