"""Checks the signatures of calls, as strictly as configured.

Signatures are ignored, must be present, or must be right. Both ways of signing are those of
Alibaba's documentation: `ACS3-HMAC-SHA256` in the header `Authorization`, and the classic HMAC-SHA1
among the parameters.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from enum import StrEnum
from hashlib import sha1, sha256
from threading import Lock
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qsl, quote

from karpenter_core.provider.kit.simulated.faults import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.server import HttpRequest

__all__ = ["ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "SignatureChecker", "SignatureMode"]

ACCESS_KEY_ID: Final = "LTAI5tSimulatedKarpenter"
"""The only access key of the simulated cloud."""
ACCESS_KEY_SECRET: Final = "simulated"  # noqa: S105 - it opens nothing
"""Its secret."""

_AUTHORIZATION: Final = re.compile(
    r"(?P<algorithm>\S+)\s+Credential=(?P<key>[^,]+),\s*SignedHeaders=(?P<headers>[^,]+),"
    r"\s*Signature=(?P<signature>[0-9a-f]+)"
)
_NOT_FOUND: Final = 404


class SignatureMode(StrEnum):
    """Strictness of the check of signatures."""

    OFF = "off"
    PRESENT = "present"
    """There must be one, of whatever key."""
    STRICT = "strict"
    """It must be right, of the known key, and its nonce must be new."""


@final
class SignatureChecker:
    """Looks at signatures."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._nonces: set[str] = set()
        self.check_kind = SignatureMode.OFF

    def clear(self) -> None:
        """Look at none, and forget the nonces that were seen."""
        self.check_kind = SignatureMode.OFF
        with self._lock:
            self._nonces.clear()

    def check(self, request: HttpRequest) -> None:
        """Look at a request.

        Raises:
            CloudError: it is not signed as it must be.
        """
        if self.check_kind is SignatureMode.OFF:
            return
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        found = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        key = found["key"] if found else query.get("AccessKeyId", "")
        given = found["signature"] if found else query.get("Signature", "")
        nonce = request.headers.get("x-acs-signature-nonce") or query.get("SignatureNonce", "")
        if not (key and given and nonce):
            raise CloudError("MissingParameter.Signature", "The request is not signed.")
        if self.check_kind is SignatureMode.PRESENT:
            return
        if key != ACCESS_KEY_ID:
            raise CloudError(
                "InvalidAccessKeyId.NotFound",
                "Specified access key is not found.",
                status=_NOT_FOUND,
            )
        right = _header_signature(request, query, found["headers"]) if found else ""
        if not hmac.compare_digest(given, right or _query_signature(request, query)):
            raise CloudError(
                "SignatureDoesNotMatch",
                "Specified signature does not match our calculation.",
            )
        with self._lock:
            if nonce in self._nonces:
                raise CloudError(
                    "SignatureNonceUsed", "Specified signature nonce was used already."
                )
            self._nonces.add(nonce)


def _header_signature(request: HttpRequest, query: Mapping[str, str], signed: str) -> str:
    """Return what the signature in the header must be; what is not of the body never is."""
    digest = request.headers.get("x-acs-content-sha256", "")
    if digest != sha256(request.body).hexdigest():
        return "the body is another"
    headers = "".join(
        f"{name}:{request.headers.get(name, '').strip()}\n" for name in signed.split(";")
    )
    canonical = "\n".join(
        (request.method, request.path, _canonical(query), headers, signed, digest)
    )
    text = f"ACS3-HMAC-SHA256\n{sha256(canonical.encode()).hexdigest()}"
    return hmac.new(ACCESS_KEY_SECRET.encode(), text.encode(), sha256).hexdigest()


def _query_signature(request: HttpRequest, query: Mapping[str, str]) -> str:
    """Return what the signature among the parameters must be."""
    form = dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
    signed = {name: value for name, value in {**query, **form}.items() if name != "Signature"}
    text = f"{request.method}&%2F&{_encoded(_canonical(signed))}"
    made = hmac.new(f"{ACCESS_KEY_SECRET}&".encode(), text.encode(), sha1)
    return b64encode(made.digest()).decode()


def _canonical(parameters: Mapping[str, str]) -> str:
    return "&".join(f"{_encoded(name)}={_encoded(parameters[name])}" for name in sorted(parameters))


def _encoded(text: str) -> str:
    return quote(text, safe="~")
