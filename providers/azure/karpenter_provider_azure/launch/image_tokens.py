"""Gets the tokens that permit images of AKS's own galleries, which are in another tenant.

A service of AKS gives them (`SIG_ACCESS_TOKEN_SERVER_URL`). Azure takes the token in a header beside the
provider's own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.clock import Clock

__all__ = ["ImageTokens"]

HEADER: Final = "x-ms-authorization-auxiliary"
_RENEWED_BEFORE: Final = timedelta(minutes=5)


@final
class ImageTokens:
    """The token for images of other tenants; callable from any thread."""

    def __init__(self, clock: Clock, read: Callable[[], Mapping[str, object]]) -> None:
        """`read` asks the service, and returns its JSON answer; it raises CloudProviderError."""
        self._clock: Final = clock
        self._read: Final = read
        self._lock: Final = Lock()
        self._token = ""
        self._renewed_at: datetime | None = None

    def headers(self) -> Mapping[str, str]:
        """Return the header with a token, which is kept until five minutes before it expires.

        Raises:
            CloudProviderError: the service refused, did not answer, or its answer has no token.
        """
        with self._lock:
            if self._renewed_at is None or self._clock.now() >= self._renewed_at:
                self._token, self._renewed_at = _token(self._read())
            return {HEADER: f"Bearer {self._token}"}


def _token(answer: Mapping[str, object]) -> tuple[str, datetime]:
    """Return a token, and when to ask for the next one."""
    fields = {key.lower().replace("_", ""): value for key, value in answer.items()}
    token = fields.get("token") or fields.get("accesstoken")
    expires_on, refresh_on = _instant(fields.get("expireson")), _instant(fields.get("refreshon"))
    if not isinstance(token, str) or not token or expires_on is None:
        raise CloudProviderError(
            "the service of SIG_ACCESS_TOKEN_SERVER_URL answered without a token and its expiry"
        )
    ends = [expires_on - _RENEWED_BEFORE, *([refresh_on] if refresh_on is not None else [])]
    return token, min(ends)


def _instant(value: object) -> datetime | None:
    """Return an instant of RFC 3339 or Unix seconds; None for none, and for the year 1 of Go."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return at if at.year > 1 else None
