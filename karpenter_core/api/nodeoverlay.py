"""NodeOverlay: the user's prices and extra resources of instance types."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject, Model, PrinterColumn
from karpenter_core.api.cel import CEL
from karpenter_core.api.conditions import STRICT_CONDITION, Condition, ConditionRules
from karpenter_core.api.facets import Facets
from karpenter_core.api.labels import GROUP
from karpenter_core.api.nodeclaim import RequirementKey, RequirementOperator, RequirementSpec
from karpenter_core.api.nodepool import VALIDATION_SUCCEEDED
from karpenter_core.api.quantities import Quantity

__all__ = [
    "CONFLICT",
    "CONFLICT_MESSAGE",
    "NODE_OVERLAY_CONDITIONS",
    "RESTRICTED_RESOURCES",
    "RUNTIME_VALIDATION",
    "NodeOverlay",
    "NodeOverlaySpec",
    "NodeOverlayStatus",
    "OverlayRequirement",
]

NODE_OVERLAY_CONDITIONS: Final = ConditionRules(dependents=(VALIDATION_SUCCEEDED,))

# Reasons while ValidationSucceeded is False
RUNTIME_VALIDATION: Final = "RuntimeValidation"
CONFLICT: Final = "Conflict"
CONFLICT_MESSAGE: Final = "conflict with another overlay"

RESTRICTED_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources that an overlay cannot set: the instance itself decides them."""

# Patterns of the API reference
_PRICE: Final = r"^\d+(\.\d+)?$"
_PRICE_ADJUSTMENT: Final = (
    r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"
)


class OverlayRequirement(Model):
    """A requirement on a label of instance types, offerings or NodePool templates."""

    key: RequirementKey
    """Label key."""
    operator: RequirementOperator
    """Relation between the label's value and `values`."""
    values: Annotated[tuple[str, ...], Facets(list_type="atomic")] = ()
    """Label values: at least one for In and NotIn, exactly one integer for Gt, Lt, Gte and Lte."""

    def to_spec(self) -> RequirementSpec:
        """Return the same requirement as NodePools have it."""
        return RequirementSpec(key=self.key, operator=self.operator, values=self.values)


class NodeOverlaySpec(Model):
    """Change of price and capacity, and the offerings that it applies to."""

    cel: ClassVar = (
        CEL(
            "!has(self.price) || !has(self.priceAdjustment)",
            "cannot set both 'price' and 'priceAdjustment'",
        ),
    )

    requirements: Annotated[
        tuple[OverlayRequirement, ...],
        Facets(list_type="atomic", max_items=100, required=True),
        CEL(
            "self.all(x, x.operator == 'NotIn' ? x.values.size() != 0 : true)",
            "requirements with operator 'NotIn' must have a value defined",
        ),
        CEL(
            "self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
            "requirements with operator 'In' must have a value defined",
        ),
        CEL(
            "self.all(x, (x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || "
            "x.operator == 'Lte') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
            "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive "
            "integer value",
        ),
    ] = ()
    """Requirements that select offerings; an empty list selects all.

    Keys are labels of instance types and their offerings, labels of NodePool templates, and
    karpenter.sh/nodepool.
    """
    price: Annotated[str | None, Facets(pattern=_PRICE)] = None
    """Price per hour of the selected offerings, in the currency of the price list."""
    price_adjustment: Annotated[str | None, Facets(pattern=_PRICE_ADJUSTMENT)] = None
    """Change of the price per hour: an amount such as +0.5 or -1.2, or a share such as +10% or -15%."""
    capacity: Annotated[
        dict[str, Quantity],
        CEL(
            "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
            "invalid resource restricted",
        ),
    ] = Field(default_factory=dict)
    """Extra resources of the nodes of the selected instance types, such as those of device plug-ins."""
    weight: Annotated[int | None, Facets(format="int32", minimum=1, maximum=10_000)] = None
    """Precedence over other overlays: the greatest weight decides, unset counts as 0.

    Overlays of equal weight must not change the same price or resource of an instance type.
    """


class NodeOverlayStatus(Model):
    """Observed state of the NodeOverlay."""

    conditions: Annotated[
        tuple[Condition, ...],
        Facets(list_type="map", list_map_keys=("type",)),
        *STRICT_CONDITION,
    ] = ()
    """Conditions of the NodeOverlay; `Ready` is True if the overlay is applied."""


class NodeOverlay(KubernetesObject):
    """Changes prices and adds resources of instance types, for scheduling and for costs. Alpha."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version="v1alpha1",
        kind="NodeOverlay",
        plural="nodeoverlays",
        singular="nodeoverlay",
        short_names=("overlays",),
        printer_columns=(
            PrinterColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
            PrinterColumn(name="Weight", json_path=".spec.weight", type="integer", priority=1),
        ),
    )

    spec: NodeOverlaySpec
    status: NodeOverlayStatus = Field(default_factory=NodeOverlayStatus)

    @property
    def weight(self) -> int:
        """The weight; 0 if none is set."""
        return self.spec.weight or 0
