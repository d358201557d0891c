"""Implements the algebra of node requirements over label values.

A requirement is a set of values of one label, finite (`In`), the complement of a finite one
(`NotIn`, `Exists`), possibly cut to a range of integers (`Gt`, `Lt`, `Gte`, `Lte`), or empty
(`DoesNotExist`). Requirements are what pods, NodePools, instance types, offerings and volumes say
about nodes; two of them combine by intersection. The rules are upstream's; where upstream chooses
at random, the smallest value is taken.

All names are imported from here.
"""

from karpenter_core.scheduling.requirements.node_labels import NodeLabels
from karpenter_core.scheduling.requirements.requirement import Requirement, parse_integer
from karpenter_core.scheduling.requirements.requirement_set import (
    RequirementConflict,
    RequirementIncompatibility,
    Requirements,
    UndefinedLabel,
    is_restricted_label,
    read_expressions,
)

__all__ = [
    "NodeLabels",
    "Requirement",
    "RequirementConflict",
    "RequirementIncompatibility",
    "Requirements",
    "UndefinedLabel",
    "is_restricted_label",
    "parse_integer",
    "read_expressions",
]
