"""Client tokens in the words of ECS."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated import tokens
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.tokens import TokenErrors

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["ClientTokens"]

_FORBIDDEN: Final = 403
_LONGEST: Final = 64
_LIFETIME: Final = timedelta(hours=24)


@final
class ClientTokens:
    """The tokens of the last day, for one action."""

    def __init__(
        self, account: Account, behaviour: CloudBehaviour, *, launches: bool = False
    ) -> None:
        """Remember nothing yet; `launches` is whether the action does, which may take its time."""
        self._behaviour: Final = behaviour
        self._tokens: Final = tokens.ClientTokens[Mapping[str, object]](
            account.clock,
            TokenErrors(mismatch=_mismatch, in_progress=self._in_progress),
            working_seconds=lambda: behaviour.launch_seconds if launches else 0,
            lifetime=_LIFETIME,
            is_repetition_refused=self._is_repetition_refused,
        )

    def clear(self) -> None:
        """Forget all tokens."""
        self._tokens.clear()

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
        if len(token) > _LONGEST or not token.isascii():
            raise CloudError(
                "InvalidClientToken.ValueNotSupported",
                f"The ClientToken has {len(token)} characters, at most {_LONGEST} of ASCII may be.",
            )
        return self._tokens.once(token, {**request, "ClientToken": ""}, act)

    def _is_repetition_refused(self) -> bool:
        if self._behaviour.tokens_in_progress <= 0:
            return False
        self._behaviour.tokens_in_progress -= 1
        return True

    def _in_progress(self) -> CloudError:
        return CloudError(
            self._behaviour.token_in_progress_code,
            "The previous request with this client token is still processing, please wait.",
            status=_FORBIDDEN,
        )


def _mismatch() -> CloudError:
    return CloudError(
        "IdempotentParameterMismatch",
        "The request uses the same client token as a previous, but non-identical request.",
    )
