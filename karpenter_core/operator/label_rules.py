"""Makes rules for users' labels from the loaded providers' declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import ALIASES, RESTRICTED_DOMAIN, WELL_KNOWN
from karpenter_core.lifecycle.nodepool.validation import LabelRules

if TYPE_CHECKING:
    from karpenter_core.provider.contract import LabelClasses

__all__ = ["label_rules"]


def label_rules(labels: LabelClasses) -> LabelRules:
    """Return the rules of the core and of these labels of providers."""
    return LabelRules(
        well_known=WELL_KNOWN | labels.well_known,
        restricted_domains=labels.restricted_domains | {RESTRICTED_DOMAIN},
        settable=labels.settable,
        aliases={**ALIASES, **labels.aliases},
        known_values=labels.known_values,
    )
