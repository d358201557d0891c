"""Says which claims of a batch are not sent after others got no answer.

Each call may take long, the whole pass waits, and the next pass plans the same claims again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import TooManyRequestsError
from karpenter_core.kube.refusals import is_in_doubt

if TYPE_CHECKING:
    from karpenter_core.errors import ApiError

__all__ = ["CreationOutages"]


@final
class CreationOutages:
    """The failures of a batch because of which its other claims are not sent.

    An API server that does not answer, or has too much to do, does so for all NodePools. An error of its
    own, or of a webhook, may concern the NodeClaims of one.
    """

    __slots__ = ("_by_pool", "_of_all")

    def __init__(self) -> None:
        self._of_all = ""
        self._by_pool: Final[dict[str, str]] = {}

    def note(self, pool: str, error: ApiError) -> None:
        """Note the error because of which a claim of the pool was given up."""
        if error.status == 0 or isinstance(error, TooManyRequestsError):
            self._of_all = str(error)
        elif is_in_doubt(error):
            self._by_pool[pool] = str(error)

    def reason_for(self, pool: str) -> str:
        """Return why no claim of a pool is sent; empty if it is."""
        return self._of_all or self._by_pool.get(pool, "")
