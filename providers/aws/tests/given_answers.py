"""Answers of the simulated AWS that a test gives, on their way to boto3."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.provider.kit.simulated.server import HttpReply, HttpRequest
    from karpenter_simulated_aws.cloud import SimulatedAws

PAGE = b"<html><body>sign in</body></html>"
"""A proxy's page that is well-formed XML, as the answers of EC2 are."""


@contextmanager
def answering(
    aws: SimulatedAws, operation: str, body: bytes, *, times: int = 10**6
) -> Iterator[None]:
    """Carry out the calls of an operation, and answer the next ones with this instead."""
    listener = aws._server._listener
    honest, marks = listener.application, (f"Action={operation}&".encode(), operation.encode())
    left = times

    def application(request: HttpRequest) -> HttpReply | None:
        nonlocal left
        reply = honest(request)
        target = request.headers.get("x-amz-target", "").partition(".")[2].encode()
        if reply is None or left == 0 or not (marks[0] in request.body or marks[1] == target):
            return reply
        left -= 1
        return replace(reply, body=body)

    listener.application = application
    try:
        yield
    finally:
        listener.application = honest
