"""Reads the region from the metadata service of the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENDPOINT", "region_id"]

ENDPOINT: Final = "http://100.100.100.200"
TIMEOUT_SECONDS: Final = 2
"""Of each of at most three requests: outside of the cloud nothing answers."""
_TOKEN_SECONDS: Final = 60
_TOKEN_NEEDED: Final = frozenset({401, 403})


def region_id(endpoint: str) -> str:
    """Return the region of the instance that the process runs on.

    Raises:
        SettingsError: there is no answer, or none with a region.
    """
    try:
        region = _region(endpoint.rstrip("/"))
    except (OSError, ValueError) as error:
        raise SettingsError(
            "the Alibaba Cloud region is not known: set REGION_ID (--region-id); the instance's "
            f"metadata at {endpoint} cannot be read: {error}"
        ) from error
    if not region:
        raise SettingsError(
            "the Alibaba Cloud region is not known: set REGION_ID (--region-id); the instance's "
            f"metadata at {endpoint} has none"
        )
    return region


def _region(endpoint: str) -> str:
    address = f"{endpoint}/latest/meta-data/region-id"
    try:
        return _read(address)
    except HTTPError as error:
        if error.code not in _TOKEN_NEEDED:
            raise
    # An instance may answer only requests with a token.
    token = _read(
        f"{endpoint}/latest/api/token",
        method="PUT",
        headers={"X-aliyun-ecs-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)},
    )
    return _read(address, headers={"X-aliyun-ecs-metadata-token": token})


def _read(address: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> str:
    # No proxy: it would answer for an instance of its own, or not at all.
    opener = build_opener(ProxyHandler({}))
    request = Request(address, method=method, headers=dict(headers or {}))  # noqa: S310 - configured
    with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
        return answer.read(1024).decode("ascii").strip()
