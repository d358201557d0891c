"""Keeps the NodeClass hashes that claims may have been launched with.

A launch without an answer is repeated, by this process or the next one, and finds the instance that the
first call made. The NodeClass may have changed in between: with its new hash, the node would look as if it
had been made from the NodeClass as it is now, and never drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.lifecycle.claim_status import with_metadata
from karpenter_core.lifecycle.nodeclass.hashing import claim_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["LaunchStamps"]


@final
class LaunchStamps:
    """The hash annotations of requests, and of the requests before them, by claim."""

    __slots__ = ("_earlier", "_first")

    def __init__(self) -> None:
        self._first: Final[dict[str, Mapping[str, str]]] = {}
        """By UID: those of the first request of this process that may have been carried out."""
        self._earlier: Final[dict[str, Mapping[str, str]]] = {}
        """By UID: those that an instance has which a request before the open one has made."""

    def stamp(
        self, claim: NodeClaim, node_class: NodeClass, current: Mapping[str, str]
    ) -> NodeClaim:
        """Return the claim with the annotations of its NodeClass as it is now, for a request.

        A request of the process before this one is not known: it was made with the hash that the claim
        was created with, unless the NodeClass had changed by then.
        """
        uid = claim.uid
        before = self._first.get(uid) or claim_hash(claim, node_class) or current
        self._earlier[uid] = before
        self._first.setdefault(uid, current)
        return with_metadata(claim, annotations={**claim.metadata.annotations, **current})

    def with_earlier(self, claim: NodeClaim) -> NodeClaim:
        """Return a stamped claim with the annotations of the request that made its instance before."""
        earlier = self._earlier.get(claim.uid, {})
        return with_metadata(claim, annotations={**claim.metadata.annotations, **earlier})

    def forget(self, uid: str) -> None:
        """Forget the requests of a claim: they have made nothing, or it is launched or gone."""
        self._first.pop(uid, None)
        self._earlier.pop(uid, None)
