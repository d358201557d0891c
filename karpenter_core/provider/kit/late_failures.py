"""Announces launches that fail after acceptance, as a listing shows them.

For clouds that answer a launch with "accepted" and report its failure only as the state of the
instance. The failed instance is announced until the core has acknowledged it; the core then
terminates it like any other.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.provider.contract import Interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.contract import ClaimReader

__all__ = ["LateFailures"]

_ID_PREFIX: Final = "launch-failed/"


@final
class LateFailures:
    """Announces failed instances; callable from any thread."""

    def __init__(
        self,
        read_failures: Callable[[], Mapping[str, CloudProviderError]],
        read_claims: ClaimReader,
    ) -> None:
        """`read_failures` reads the failed instances of the cluster: provider ID to error.

        It may raise any CloudProviderError. `read_claims` is that of `ProviderContext`.
        """
        self._read_failures: Final = read_failures
        self._read_claims: Final = read_claims
        self._acknowledged: Final[set[str]] = set()
        self._lock: Final = Lock()

    def poll(self) -> list[Interruption]:
        """Return the failures that were not acknowledged yet.

        The cloud is called only while a NodeClaim has an instance and no registered node: an idle
        cluster costs no call.

        Raises:
            CloudProviderError: what `read_failures` raised.
        """
        if not any(
            claim.status.provider_id and not is_true(claim.status.conditions, REGISTERED)
            for claim in self._read_claims().values()
        ):
            return []
        failures = {_ID_PREFIX + key: (key, error) for key, error in self._read_failures().items()}
        with self._lock:
            self._acknowledged.intersection_update(failures)
            return [
                Interruption(
                    id=message_id,
                    kind=InterruptionKind.LAUNCH_FAILED,
                    provider_id=provider_id,
                    error=error,
                )
                for message_id, (provider_id, error) in sorted(failures.items())
                if message_id not in self._acknowledged
            ]

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Announce these failures no more; other ids are ignored."""
        with self._lock:
            self._acknowledged.update(each for each in ids if each.startswith(_ID_PREFIX))
