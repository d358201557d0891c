"""Client tokens: the same call again does nothing and is answered as before."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.simulated.faults import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from karpenter_provider_alibabacloud.simulated.account import Account
    from karpenter_provider_alibabacloud.simulated.behaviour import Behaviour
    from karpenter_provider_alibabacloud.simulated.parameters import Parameters

__all__ = ["ClientTokens"]

_FORBIDDEN: Final = 403
_LONGEST: Final = 64
_LIFETIME: Final = timedelta(hours=24)


@final
class ClientTokens:
    """The tokens of the last day, for one action."""

    def __init__(self, account: Account, behaviour: Behaviour) -> None:
        self._account: Final = account
        self._behaviour: Final = behaviour
        self._seen: dict[str, tuple[str, datetime, Mapping[str, object]]] = {}

    def clear(self) -> None:
        """Forget all tokens."""
        self._seen.clear()

    def once(
        self, request: Parameters, act: Callable[[], Mapping[str, object]]
    ) -> Mapping[str, object]:
        """Do what is asked for, or return what came of it when the same was asked for before.

        Raises:
            CloudError: the token is malformed, is that of another request, or its request is still in
                progress.
        """
        token = request.text("ClientToken")
        if not token:
            return act()
        if len(token) > _LONGEST or not token.isascii():
            raise CloudError(
                "InvalidClientToken.ValueNotSupported",
                f"The ClientToken has {len(token)} characters, at most {_LONGEST} of ASCII may be.",
            )
        digest = json.dumps({**request, "ClientToken": ""}, sort_keys=True)
        now = self._account.clock()
        before = self._seen.get(token)
        if before is not None and now < before[1] + _LIFETIME:
            if before[0] != digest:
                raise CloudError(
                    "IdempotentParameterMismatch",
                    "The request uses the same client token as a previous, but non-identical"
                    " request.",
                )
            self._check_progress()
            return before[2]
        answer = act()
        self._seen[token] = (digest, now, answer)
        return answer

    def _check_progress(self) -> None:
        if self._behaviour.tokens_in_progress > 0:
            self._behaviour.tokens_in_progress -= 1
            raise CloudError(
                self._behaviour.token_in_progress_code,
                "The previous request with this client token is still processing, please wait.",
                status=_FORBIDDEN,
            )
