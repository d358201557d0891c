"""Reads HTTP answers of a cloud within a size and a time; no redirects."""

from __future__ import annotations

from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPMessage
    from ssl import SSLContext
    from typing import IO
    from urllib.request import OpenerDirector, Request

__all__ = [
    "MOST_ANSWER_BYTES",
    "UnusableAnswerError",
    "direct_opener",
    "read_bounded",
    "read_bounded_pool_answer",
]

MOST_ANSWER_BYTES: Final = 2**24
"""Default bound of one answer; a listing of 1,000 instances with all their fields has less than a quarter."""
_CHUNK_BYTES: Final = 2**16


class UnusableAnswerError(Exception):
    """An answer is too large, too slow or cut; the call may have been carried out."""


class _Answer(Protocol):
    @property
    def length(self) -> int | None: ...  # what is still to come; None if it is not known

    def read1(self, size: int, /) -> bytes: ...


class _PoolAnswer(Protocol):
    def read1(self, amt: int, *, decode_content: bool) -> bytes: ...

    def release_conn(self) -> None: ...

    def close(self) -> None: ...


def direct_opener(*, ca_bundle: str = "") -> OpenerDirector:
    """Return an opener that raises HTTPError for a redirect: following it would send credentials elsewhere.

    `ca_bundle` is a file of certificates, by default the system's.
    """
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(  # the base class calls it by position, and asks for these names
            self,
            req: Request,
            fp: IO[bytes],
            code: int,
            msg: str,
            headers: HTTPMessage,
            newurl: str,
        ) -> None:
            del req, fp, code, msg, headers, newurl

    return build_opener(NoRedirects(), HTTPSHandler(context=_tls_context(ca_bundle)))


@cache  # reading the system's certificates takes 20 ms
def _tls_context(ca_bundle: str) -> SSLContext:
    import ssl

    from karpenter_core.provider.kit.calls.tls_versions import refuse_old_tls

    context = refuse_old_tls(ssl.create_default_context(cafile=ca_bundle or None))
    context.set_alpn_protocols(["http/1.1"])  # as urllib does in a context of its own
    return context


def read_bounded(
    answer: _Answer,
    *,
    seconds: float,
    most_bytes: int = MOST_ANSWER_BYTES,
    now: Callable[[], float] = monotonic,
) -> bytes:
    """Return the body of an answer of `http.client`.

    A socket's timeout ends one wait; a server that sends a byte now and then would hold the thread for
    ever.

    Raises:
        UnusableAnswerError: it is larger than `most_bytes`, not complete after `seconds`, or cut.
        OSError: no more came in time.
    """
    body = _bounded_body(answer.read1, seconds=seconds, most_bytes=most_bytes, now=now)
    if answer.length:
        raise UnusableAnswerError(f"the answer was cut {answer.length} bytes before its end")
    return body


def read_bounded_pool_answer(
    answer: _PoolAnswer,
    *,
    seconds: float,
    most_bytes: int = MOST_ANSWER_BYTES,
    decode: bool = False,
    now: Callable[[], float] = monotonic,
) -> bytes:
    """Return the body of an answer of `urllib3`, which SDKs of clouds read whole.

    With `decode`, the bound is that of the body after decompression. Afterwards the connection can serve
    the next call; after an error it is closed.

    Raises:
        UnusableAnswerError: it is larger than `most_bytes`, or not complete after `seconds`.
        urllib3.exceptions.HTTPError: no more came in time, or the answer was cut.
    """

    def read(size: int) -> bytes:
        return answer.read1(size, decode_content=decode)

    try:
        body = _bounded_body(read, seconds=seconds, most_bytes=most_bytes, now=now)
    except BaseException:
        answer.close()
        raise
    answer.release_conn()
    return body


def _bounded_body(
    read: Callable[[int], bytes],
    *,
    seconds: float,
    most_bytes: int,
    now: Callable[[], float],
) -> bytes:
    ends_at = now() + seconds
    parts: list[bytes] = []
    size = 0
    while part := read(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            raise UnusableAnswerError(f"the answer is larger than {most_bytes} bytes")
        if now() > ends_at:
            raise UnusableAnswerError(f"the answer is not complete after {seconds:g} s")
    return b"".join(parts)
