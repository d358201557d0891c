"""Client tokens: a repeated call does nothing and gets the first answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["ClientTokens", "NoAnswerError"]

_FORBIDDEN: Final = 403
_LONGEST: Final = 64
_LIFETIME: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenRecord:
    """A request with a token."""

    digest: str
    at: datetime
    answer: Mapping[str, object]
    ready_at: datetime


class NoAnswerError(Exception):
    """The call is carried out, and takes longer than its caller waits."""


@final
class ClientTokens:
    """The tokens of the last day, for one action."""

    def __init__(
        self, account: Account, behaviour: CloudBehaviour, *, launches: bool = False
    ) -> None:
        """Remember nothing yet; `launches` is whether the action does, which may take its time."""
        self._account: Final = account
        self._behaviour: Final = behaviour
        self._launches: Final = launches
        self._seen: dict[str, _TokenRecord] = {}

    def clear(self) -> None:
        """Forget all tokens."""
        self._seen.clear()

    def once(
        self, request: RequestParameters, act: Callable[[], Mapping[str, object]]
    ) -> Mapping[str, object]:
        """Do what is asked for, or return what came of it when the same was asked for before.

        Raises:
            CloudError: the token is malformed, is that of another request, or its request is still in
                progress.
            NoAnswerError: it takes longer than its caller waits.
        """
        token = request.text("ClientToken")
        if not token:
            return self._answered(act())
        if len(token) > _LONGEST or not token.isascii():
            raise CloudError(
                "InvalidClientToken.ValueNotSupported",
                f"The ClientToken has {len(token)} characters, at most {_LONGEST} of ASCII may be.",
            )
        digest = json.dumps({**request, "ClientToken": ""}, sort_keys=True)
        now = self._account.clock()
        before = self._seen.get(token)
        if before is not None and now < before.at + _LIFETIME:
            if before.digest != digest:
                raise CloudError(
                    "IdempotentParameterMismatch",
                    "The request uses the same client token as a previous, but non-identical"
                    " request.",
                )
            self._check_progress(before.ready_at)
            return before.answer
        answer = act()
        ready_at = now + timedelta(seconds=self._working_seconds)
        self._seen[token] = _TokenRecord(digest=digest, at=now, answer=answer, ready_at=ready_at)
        return self._answered(answer)

    def _answered(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        if self._working_seconds > 0:
            raise NoAnswerError
        return answer

    @property
    def _working_seconds(self) -> float:
        return self._behaviour.launch_seconds if self._launches else 0

    def _check_progress(self, ready_at: datetime) -> None:
        is_working = self._account.clock() < ready_at
        if is_working or self._behaviour.tokens_in_progress > 0:
            if not is_working:
                self._behaviour.tokens_in_progress -= 1
            raise CloudError(
                self._behaviour.token_in_progress_code,
                "The previous request with this client token is still processing, please wait.",
                status=_FORBIDDEN,
            )
