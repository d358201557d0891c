"""Keeps idempotency tokens: a repeated call only gets the first answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.faults import CloudError

__all__ = ["ClientTokens", "NoAnswerError", "TokenErrors"]

Answer = TypeVar("Answer")


class NoAnswerError(Exception):
    """The call is carried out, and takes longer than its caller waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenErrors:
    """The refusals of a token in the words of a cloud."""

    mismatch: Callable[[], CloudError]
    """The token belongs to a call with other parameters."""
    in_progress: Callable[[], CloudError]
    """The call with this token is not answered yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenRecord(Generic[Answer]):
    digest: str
    at: datetime
    answer: Answer
    ready_at: datetime


@final
class ClientTokens(Generic[Answer]):
    """The tokens of one action, with the answers to their calls."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        errors: TokenErrors,
        *,
        working_seconds: Callable[[], float] = lambda: 0,
        lifetime: timedelta | None = None,
        is_repetition_refused: Callable[[], bool] = lambda: False,
    ) -> None:
        """Keep no token yet.

        A call takes `working_seconds`. If that is more than zero, its caller gets no answer, and
        its token is in progress until then; further repetitions are refused in the same way if
        `is_repetition_refused`. A token is forgotten after `lifetime`.
        """
        self._clock: Final = clock
        self._errors: Final = errors
        self._working_seconds: Final = working_seconds
        self._lifetime: Final = lifetime
        self._seen: Final[dict[str, _TokenRecord[Answer]]] = {}
        self._is_repetition_refused: Final = is_repetition_refused

    def clear(self) -> None:
        """Forget all tokens."""
        self._seen.clear()

    def once(
        self, token: str, parameters: Mapping[str, object], act: Callable[[], Answer]
    ) -> Answer:
        """Execute a call, or return the answer to the first call with its token.

        `parameters` are those of the call without the token. An empty token is none. A call that
        raises keeps no token.

        Raises:
            CloudError: of `act`, or one of `TokenErrors`.
            NoAnswerError: the call takes longer than its caller waits.
        """
        digest = json.dumps(parameters, sort_keys=True, default=str)
        now = self._clock()
        before = self._seen.get(token) if token else None
        if before is not None and (self._lifetime is None or now < before.at + self._lifetime):
            if before.digest != digest:
                raise self._errors.mismatch()
            if now < before.ready_at or self._is_repetition_refused():
                raise self._errors.in_progress()
            return before.answer
        answer = act()
        seconds = self._working_seconds()
        if token:
            ready_at = now + timedelta(seconds=seconds)
            self._seen[token] = _TokenRecord(
                digest=digest, at=now, answer=answer, ready_at=ready_at
            )
        if seconds > 0:
            raise NoAnswerError
        return answer
