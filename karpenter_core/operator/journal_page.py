"""Serves the last decisions as JSON under /debug/decisions, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.decisions import DISRUPT, OBSERVE, PROVISION, decision_document
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.controllers.reconciling.decision_journal import DecisionJournal

__all__ = ["PATH", "decisions_page"]

PATH: Final = "/debug/decisions"
DEFAULT_LIMIT: Final = 100
_LIMIT_DIGITS: Final = 9
_PARAMETERS: Final = frozenset({"limit", "kind"})
_KINDS: Final = (DISRUPT, OBSERVE, PROVISION)


def decisions_page(journal: DecisionJournal, query: Mapping[str, str]) -> bytes:
    """Return the last decisions as JSON, as many and of the kind that the query asks for.

    Raises:
        BadInputError: the query makes no sense.
    """
    unknown = sorted(set(query) - _PARAMETERS)
    if unknown:
        raise BadInputError(f'unknown parameter "{unknown[0]}"; known: kind, limit')
    text = query.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdigit()):
        raise BadInputError(f'limit: "{text}" is not a number of zero or more')
    kind = query.get("kind", "")
    if kind and kind not in _KINDS:
        raise BadInputError(f'kind: "{kind}" is none of {", ".join(_KINDS)}')
    digits = text.lstrip("0") or "0"
    limit = int(digits) if len(digits) <= _LIMIT_DIGITS else None  # more than there are
    decisions = journal.latest(limit, kind=kind)
    return msgspec.json.encode({"decisions": [decision_document(item) for item in decisions]})
