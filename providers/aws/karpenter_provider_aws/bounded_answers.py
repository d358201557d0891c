"""Bounds what the SDK reads of one answer, in size and time.

botocore reads an answer whole, however much is sent and however slowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast, final

from karpenter_core.provider.kit.calls.bounded_reads import (
    UnusableAnswerError,
    read_bounded_pool_answer,
)

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.client import BaseClient

__all__ = ["MOST_ANSWER_BYTES", "BoundedSession", "bound_answers"]

MOST_ANSWER_BYTES: Final = 2**26
"""EC2 describes 1,000 instances in a page, each with up to 50 tags of 384 characters, in XML."""


class _Session(Protocol):
    def send(self, request: AWSPreparedRequest) -> AWSResponse: ...

    def close(self) -> None: ...


class _Endpoint(Protocol):
    http_session: _Session


@final
class BoundedSession:
    """Sends by a session of botocore, and reads the answers itself."""

    def __init__(
        self, session: _Session, *, seconds: float, most_bytes: int = MOST_ANSWER_BYTES
    ) -> None:
        self._session: Final = session
        self._seconds: Final = seconds
        self._most_bytes: Final = most_bytes

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Send a request and read its answer.

        Raises:
            botocore.exceptions.HTTPClientError: there was no answer, or it was too long or too slow.
        """
        from botocore.exceptions import HTTPClientError
        from urllib3.exceptions import HTTPError

        is_streamed = request.stream_output
        request.stream_output = True  # the session leaves the body to us
        response = self._session.send(request)
        if not is_streamed:
            try:
                body = read_bounded_pool_answer(
                    response.raw, seconds=self._seconds, most_bytes=self._most_bytes
                )
            except (UnusableAnswerError, HTTPError, OSError) as error:
                raise HTTPClientError(error=error) from error
            vars(response)["_content"] = body  # where botocore itself leaves it
        return response

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


def bound_answers(
    client: BaseClient, *, seconds: float, shared: BoundedSession | None = None
) -> BoundedSession:
    """Have a client read bounded answers, and return its session; botocore has no setting for it.

    Clients of the same proxies, certificates and time limits may share one: each session keeps a copy of
    all certificates of authorities, close to a megabyte. Connections are kept apart by host.
    """
    endpoint = cast("_Endpoint", vars(client)["_endpoint"])
    session = shared or BoundedSession(endpoint.http_session, seconds=seconds)
    endpoint.http_session = session
    return session
