"""Counts and times the attempts of calls to a cloud."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["CallMetrics"]

_CODE: Final = re.compile(r"[A-Za-z0-9_.:/ -]{1,100}")
_MOST_CODES: Final = 200
"""Bound of different codes: each is a series, and the cloud chooses them."""
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 5, 10, 15)


@final
class CallMetrics:
    """Metrics of the calls to one cloud; `observe` is an `AttemptObserver`.

    `karpenter_NAME_api_requests_total` has the labels action and code,
    `karpenter_NAME_api_duration_seconds` has the label action.
    """

    def __init__(self, registry: CollectorRegistry, name: str, *, cloud: str) -> None:
        """`name` is the provider's name, `cloud` the name for help texts."""
        self._registry: Final = registry
        self._codes: Final[set[str]] = set()
        self._requests: Final = Counter(
            f"karpenter_{name}_api_requests_total",
            f"Calls to {cloud}, including retries.",
            ("action", "code"),
            registry=registry,
        )
        self._durations: Final = Histogram(
            f"karpenter_{name}_api_duration_seconds",
            f"Duration of single attempts of calls to {cloud}.",
            ("action",),
            buckets=_SECONDS,
            registry=registry,
        )

    def observe(self, action: str, code: str, seconds: float) -> None:
        """Record an attempt; a code that is no code, or one too many, counts as `other`."""
        if code not in self._codes:
            if len(self._codes) >= _MOST_CODES or not _CODE.fullmatch(code):
                code = "other"
            self._codes.add(code)
        self._requests.labels(action, code).inc()
        self._durations.labels(action).observe(seconds)

    def close(self) -> None:
        """Unregister the metrics, so that a provider can be started again."""
        self._registry.unregister(self._requests)
        self._registry.unregister(self._durations)
