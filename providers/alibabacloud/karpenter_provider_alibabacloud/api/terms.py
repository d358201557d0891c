"""Selector terms for vSwitches, groups, images and reservations.

Terms of a list are alternatives; what stands in one term must hold together.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets
from karpenter_provider_alibabacloud.api.families import ImageAlias, ImageFamily, parse_alias

__all__ = [
    "MAX_TERMS",
    "CapacityReservationTerm",
    "ImageTerm",
    "SecurityGroupTerm",
    "Tags",
    "VSwitchTerm",
]

MAX_TERMS: Final = 30
IMAGE_OWNERS: Final = ("self", "system", "others")

_FAMILY_NAMES: Final = ", ".join(ImageFamily)
_FAMILY_PATTERN: Final = "|".join(ImageFamily)
_MAX_ALIAS: Final = 64

Tags = Annotated[
    dict[str, str],
    Facets(max_properties=20),
    CEL("self.all(k, k != '')", "the key of a tag may not be empty"),
]
"""Tags that must all be there; the value `*` means any."""


class VSwitchTerm(Model):
    """vSwitches with these tags or this name, or the one with this id."""

    cel: ClassVar = (
        CEL("has(self.tags) || has(self.id) || has(self.name)", "a term needs tags, id or name"),
        CEL(
            "!(has(self.id) && (has(self.tags) || has(self.name) || has(self.zoneId)))",
            "id must be the only field of its term",
        ),
    )

    tags: Tags = Field(default_factory=dict)
    """Tags of the vSwitches; the value * means any."""
    id: Annotated[str, Facets(pattern=r"^vsw-[0-9a-z]+$")] = ""
    """Id of one vSwitch."""
    name: Annotated[str, Facets(min_length=1)] = ""
    """The vSwitches' name in VPC, which is not their tag Name."""
    zone_id: Annotated[str, Facets(min_length=1), Field(alias="zoneId")] = ""
    """Zone of the vSwitches, beside tags or name."""


class SecurityGroupTerm(Model):
    """Security groups with these tags, with this name, or the one with this id."""

    cel: ClassVar = (
        CEL("has(self.tags) || has(self.id) || has(self.name)", "a term needs tags, id or name"),
        CEL(
            "!(has(self.id) && (has(self.tags) || has(self.name)))",
            "id must be the only field of its term",
        ),
        CEL("!(has(self.name) && has(self.tags))", "name must be the only field of its term"),
    )

    tags: Tags = Field(default_factory=dict)
    """Tags of the security groups; the value * means any."""
    id: Annotated[str, Facets(pattern=r"^sg-[0-9a-z]+$")] = ""
    """Id of one security group."""
    name: Annotated[str, Facets(min_length=1)] = ""
    """The group's name in ECS, which is not its tag Name."""


class ImageTerm(Model):
    """Images that ACK publishes for a family, or found by id, name, tags or ECS's image family."""

    cel: ClassVar = (
        CEL(
            "has(self.id) || has(self.alias) || has(self.name) || has(self.tags) || "
            "has(self.imageFamily)",
            "a term needs id, alias, name, tags or imageFamily",
        ),
        CEL(
            "!(has(self.id) && (has(self.alias) || has(self.name) || has(self.tags) || "
            "has(self.imageFamily) || has(self.ownerAlias)))",
            "id must be the only field of its term",
        ),
        CEL(
            "!(has(self.alias) && (has(self.name) || has(self.tags) || has(self.imageFamily) || "
            "has(self.ownerAlias)))",
            "alias must be the only field of its term",
        ),
    )

    id: Annotated[str, Facets(min_length=1)] = ""
    """Id of one image."""
    alias: Annotated[
        str,
        Facets(max_length=_MAX_ALIAS),
        CEL(
            f"self.matches('^({_FAMILY_PATTERN})(@[^@]+)?$')",
            f"an alias is a family or family@version, the family one of {_FAMILY_NAMES}",
        ),
    ] = ""
    """Images that ACK publishes: a family, family@latest or family@version.

    The version is the date in the images' names, such as 20250117. It must be the only term.
    """
    name: Annotated[str, Facets(min_length=1)] = ""
    """Name of the images in ECS, which is not their tag Name."""
    tags: Tags = Field(default_factory=dict)
    """Tags of the images; the value * means any."""
    image_family: Annotated[str, Facets(min_length=1)] = ""
    """ECS's own image family, of which the newest image is taken."""
    owner_alias: Annotated[str, Facets(enum=IMAGE_OWNERS)] = ""
    """Owner of the images: self, system or others; beside name, tags or imageFamily."""

    @property
    def parsed_alias(self) -> ImageAlias | None:
        """The alias, read; None when the term has none."""
        return parse_alias(self.alias)


class CapacityReservationTerm(Model):
    """Private pools of capacity (reservations and assurances) to launch into."""

    cel: ClassVar = (
        CEL("has(self.tags) || has(self.id) || has(self.name)", "a term needs tags, id or name"),
        CEL(
            "!(has(self.id) && (has(self.tags) || has(self.name)))",
            "id must be the only field of its term",
        ),
    )

    tags: Tags = Field(default_factory=dict)
    """Tags of the private pools; the value * means any."""
    id: Annotated[str, Facets(pattern=r"^(crp|eap)-[0-9a-z]+$")] = ""
    """Id of one private pool."""
    name: Annotated[str, Facets(min_length=1)] = ""
    """Name of the private pools."""
