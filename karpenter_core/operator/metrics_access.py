"""Admits requests to the metrics port by bearer tokens and RBAC.

A TokenReview names the user of a token, and a SubjectAccessReview says whether that user may send
this verb to this path (`nonResourceURLs` of a ClusterRole), as controller-runtime's secure metrics do.
A review without an answer permits nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec
import structlog

from karpenter_core.errors import ApiError
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.pacing import time_limit
from karpenter_core.kube.rate_limits import AsyncTokenBucket
from karpenter_core.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.kube.transport import Transport

__all__ = ["AccessReviewer"]

REVIEW_QPS: Final = 10.0
REVIEW_BURST: Final = 20
"""Limits of reviews sent to the API server; requests with unknown tokens cost it no more than that."""
PERMITTED_SECONDS: Final = 60.0
"""Time that a permission is remembered: a revoked token or role admits for so long."""
REFUSED_SECONDS: Final = 10.0
REMEMBERED: Final = 500
"""Permissions that are remembered, and refusals as well, apart: refusals displace no permission."""
AT_ONCE: Final = 20
"""Requests that wait for a review at the same time; a further one is not admitted."""
REVIEW_SECONDS: Final = 10.0

_Key = tuple[bytes, str, str]


class _Remembered(NamedTuple):
    status: HTTPStatus
    until: float


class _User(msgspec.Struct, gc=False):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, gc=False):
    authenticated: bool = False
    user: _User | None = None


class _TokenReview(msgspec.Struct, gc=False):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct, gc=False):
    allowed: bool
    denied: bool = False


class _AccessReview(msgspec.Struct, gc=False):
    status: _AccessStatus


_token_reviews: Final = msgspec.json.Decoder(_TokenReview)
_access_reviews: Final = msgspec.json.Decoder(_AccessReview)


@final
class AccessReviewer:
    """Says with which status a request is answered: 200 for one that is admitted."""

    def __init__(self, api: KubeApi, *, clock: Clock) -> None:
        self._api: Final = api
        self._clock: Final = clock
        self._log: Final[FilteringBoundLogger] = structlog.get_logger("operator")
        self._permitted: Final = OrderedDict[_Key, _Remembered]()
        self._refused: Final = OrderedDict[_Key, _Remembered]()
        self._waiting = 0

    @classmethod
    def of(cls, transport: Transport, *, clock: Clock) -> AccessReviewer:
        """Return one that asks an API server, within limits of its own."""
        limiter = AsyncTokenBucket(clock, rate=REVIEW_QPS, burst=REVIEW_BURST)
        return cls(KubeApi(transport, clock=clock, limiter=limiter), clock=clock)

    async def status(self, authorization: str, *, method: str, path: str) -> HTTPStatus:
        """Return OK, UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE where a review is not answered."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return HTTPStatus.UNAUTHORIZED
        verb = method.lower()
        # No token is kept: only its digest.
        key = (sha256(token.encode(errors="surrogateescape")).digest(), verb, path)
        now = self._clock.monotonic()
        for remembered in (self._permitted, self._refused):
            known = remembered.get(key)
            if known is not None and now < known.until:
                return known.status
        if self._waiting >= AT_ONCE:
            return HTTPStatus.SERVICE_UNAVAILABLE
        self._waiting += 1
        try:
            async with time_limit(self._clock, REVIEW_SECONDS):
                status = await self._review(token, verb, path)
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            message = str(error).replace(token, "...") or type(error).__name__
            self._log.error("a review of access to the metrics is not answered", error=message)
            return HTTPStatus.SERVICE_UNAVAILABLE
        finally:
            self._waiting -= 1
        self._remember(key, status)
        return status

    async def _review(self, token: str, verb: str, path: str) -> HTTPStatus:
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token},
        }
        of_token = _token_reviews.decode(await self._api.create(TOKEN_REVIEWS, body)).status
        if not of_token.authenticated:
            return HTTPStatus.UNAUTHORIZED
        user = of_token.user
        if user is None or not user.username:
            raise ApiError("the answer to the TokenReview names no user", status=0)
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        review = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "spec": spec,
        }
        answer = await self._api.create(SUBJECT_ACCESS_REVIEWS, review)
        of_access = _access_reviews.decode(answer).status
        is_admitted = of_access.allowed and not of_access.denied
        return HTTPStatus.OK if is_admitted else HTTPStatus.FORBIDDEN

    def _remember(self, key: _Key, status: HTTPStatus) -> None:
        is_permitted = status is HTTPStatus.OK
        remembered = self._permitted if is_permitted else self._refused
        seconds = PERMITTED_SECONDS if is_permitted else REFUSED_SECONDS
        (self._refused if is_permitted else self._permitted).pop(key, None)
        remembered.pop(key, None)
        remembered[key] = _Remembered(status, self._clock.monotonic() + seconds)
        while len(remembered) > REMEMBERED:
            remembered.popitem(last=False)
