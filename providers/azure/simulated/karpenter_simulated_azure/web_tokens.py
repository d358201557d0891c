"""Signs JSON web tokens, and verifies those signed with the same seed."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonObject

__all__ = ["WebTokens"]


@final
class WebTokens:
    """Tokens of one key."""

    def __init__(self, seed: str) -> None:
        self._key: Final = sha256(seed.encode()).digest()

    def sign(self, claims: Mapping[str, object]) -> str:
        """Return a token with these claims."""
        head = _encode(json.dumps({"typ": "JWT", "alg": "HS256"}).encode())
        text = f"{head}.{_encode(json.dumps(claims).encode())}"
        return f"{text}.{self._signature(text)}"

    def _signature(self, text: str) -> str:
        return _encode(hmac.new(self._key, text.encode(), sha256).digest())

    def claims(self, token: str) -> JsonObject | None:
        """Return the claims of a token; None if it was not signed here."""
        text, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return None
        payload = text.partition(".")[2]
        try:
            found: object = json.loads(urlsafe_b64decode(f"{payload}{'=' * (-len(payload) % 4)}"))
        except (Base64Error, ValueError):
            return None
        return cast("JsonObject", found) if isinstance(found, dict) else None


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
