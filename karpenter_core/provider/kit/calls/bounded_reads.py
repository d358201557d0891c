"""Reads answers of a cloud over HTTP, up to a size and for a time, from the place that was asked alone."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPMessage
    from typing import IO
    from urllib.request import BaseHandler, OpenerDirector, Request

__all__ = ["MOST_ANSWER_BYTES", "UnusableAnswerError", "direct_opener", "read_bounded"]

MOST_ANSWER_BYTES: Final = 2**24
"""Default bound of one answer; a listing of 1,000 instances with all their fields has less than a quarter."""
_CHUNK_BYTES: Final = 2**16


class UnusableAnswerError(Exception):
    """An answer is too large, too slow or cut; the call may have been carried out."""


class _Answer(Protocol):
    @property
    def length(self) -> int | None: ...  # what is still to come; None if it is not known

    def read1(self, size: int, /) -> bytes: ...


def direct_opener(*handlers: BaseHandler) -> OpenerDirector:
    """Return an opener that raises HTTPError for a redirect: following it would send credentials elsewhere."""
    from urllib.request import HTTPRedirectHandler, build_opener

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

    return build_opener(NoRedirects(), *handlers)


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
    ends_at = now() + seconds
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            raise UnusableAnswerError(f"the answer is larger than {most_bytes} bytes")
        if now() > ends_at:
            raise UnusableAnswerError(f"the answer is not complete after {seconds:g} s")
    if answer.length:
        raise UnusableAnswerError(f"the answer was cut {answer.length} bytes before its end")
    return b"".join(parts)
