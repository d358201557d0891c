"""Caches of disruption passes, which change no result of a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.disruption.candidate_memory import CandidateMemory
from karpenter_core.disruption.candidates import Candidate
from karpenter_core.disruption.refusal_memory import RefusalMemory
from karpenter_core.disruption.savings_order import SavingsOrder
from karpenter_core.scheduling.identity_memo import IdentityMemo
from karpenter_core.state.node_memory import NodeMemory

if TYPE_CHECKING:
    from karpenter_core.disruption.acceptance import CandidateAcceptance
    from karpenter_core.disruption.budgets import BudgetUse
    from karpenter_core.scheduling.whatif.what_if import WhatIf
    from karpenter_core.state.snapshot import StateNode

__all__ = ["DisruptionMemory"]


@final
class DisruptionMemory:
    """The memory of one series of passes; not for two passes at the same time."""

    __slots__ = (
        "_user", "acceptances", "budget_uses", "candidates", "nodes", "refusals", "savings_order", "settled",
        "whatif",
    )  # fmt: skip

    def __init__(self) -> None:
        self.nodes: Final = NodeMemory()
        self.candidates: Final = CandidateMemory[Candidate]()
        self.settled: IdentityMemo[StateNode, bool] = IdentityMemo()
        """Whether nodes are outside of their pool's `consolidateAfter`."""
        self.acceptances: Final = dict[str, "IdentityMemo[Candidate, CandidateAcceptance]"]()
        """Verdicts of methods on candidates, by method."""
        self.budget_uses: IdentityMemo[StateNode, BudgetUse] = IdentityMemo()
        self.savings_order: Final = SavingsOrder()
        self.refusals: Final = RefusalMemory()
        self.whatif: WhatIf | None = None
        """The what-ifs of the last pass, to be renewed."""
        self._user: WhatIfUser | None = None

    def take_over(self, user: WhatIfUser) -> WhatIf | None:
        """Return the what-ifs of the last pass, which has to make others if it goes on."""
        taken, before = self.whatif, self._user
        self.whatif, self._user = None, user
        if before is not None and before is not user:
            before.reset()
        return taken


class WhatIfUser(Protocol):
    """Owner of what-ifs."""

    def reset(self) -> None:
        """Discard the what-ifs."""
        ...
