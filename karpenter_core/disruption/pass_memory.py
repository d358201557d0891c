"""Holds what disruption passes keep for the next one; the result of a pass is the same without."""

from __future__ import annotations

from typing import Final, final

from karpenter_core.disruption.candidate_memory import CandidateMemory
from karpenter_core.disruption.candidates import Candidate
from karpenter_core.state.node_memory import NodeMemory

__all__ = ["DisruptionMemory"]


@final
class DisruptionMemory:
    """The memory of one series of passes; not for two passes at the same time."""

    __slots__ = ("candidates", "nodes")

    def __init__(self) -> None:
        self.nodes: Final = NodeMemory()
        self.candidates: Final = CandidateMemory[Candidate]()
