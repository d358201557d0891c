"""Gets tokens for images of AKS's own galleries, in another tenant.

A service of AKS gives them (`SIG_ACCESS_TOKEN_SERVER_URL`). Azure takes the token in a header beside the
provider's own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.resolution import SharedRead

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
        self._token: _ImageToken | None = None
        self._open: SharedRead[_ImageToken] | None = None

    def headers(self) -> Mapping[str, str]:
        """Return the header with a token, which is renewed five minutes before it expires.

        A token that cannot be renewed is used until it expires. Callers that need one at the same time
        share a read, and its error.

        Raises:
            CloudProviderError: the service refused, did not answer, or its answer has no token.
        """
        with self._lock:
            token = self._token
            if token is not None and self._clock.now() < token.renewed_at:
                return _header(token)
            read = self._open = self._open or SharedRead(self._fetch)
        try:
            return _header(read())
        except CloudProviderError:
            if token is None or self._clock.now() >= token.expires_on:
                raise
            return _header(token)

    def _fetch(self) -> _ImageToken:
        try:
            token = _token(self._read())
        except BaseException:
            with self._lock:
                self._open = None
            raise
        with self._lock:
            self._open, self._token = None, token
        return token


class _ImageToken(NamedTuple):
    text: str
    renewed_at: datetime
    expires_on: datetime


def _header(token: _ImageToken) -> Mapping[str, str]:
    return {HEADER: f"Bearer {token.text}"}


def _token(answer: Mapping[str, object]) -> _ImageToken:
    """Return the token of an answer, and when to ask for the next one."""
    fields = {key.lower().replace("_", ""): value for key, value in answer.items()}
    token = fields.get("token") or fields.get("accesstoken")
    expires_on, refresh_on = _instant(fields.get("expireson")), _instant(fields.get("refreshon"))
    if not isinstance(token, str) or not token or expires_on is None:
        raise CloudProviderError(
            "the service of SIG_ACCESS_TOKEN_SERVER_URL answered without a token and its expiry"
        )
    ends = [expires_on - _RENEWED_BEFORE, *([refresh_on] if refresh_on is not None else [])]
    return _ImageToken(token, min(ends), expires_on)


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
