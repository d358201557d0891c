"""Answers of the simulated cloud that a test gives, on their way to the SDK."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from karpenter_core.provider.kit.simulated.server import HttpReply, HttpRequest
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


@contextmanager
def answering(
    cloud: SimulatedAlibabaCloud,
    action: str,
    answer: object,
    *,
    when: Callable[[HttpRequest], bool] = lambda _request: True,
) -> Iterator[None]:
    """Carry out the calls of an action, and answer with this instead; only those that `when` takes."""
    listener = cloud._server._listener
    honest = listener.application

    def application(request: HttpRequest) -> HttpReply | None:
        reply = honest(request)
        if reply is None or request.headers.get("x-acs-action") != action or not when(request):
            return reply
        return replace(reply, body=json.dumps(answer).encode())

    listener.application = application
    try:
        yield
    finally:
        listener.application = honest
