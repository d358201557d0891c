"""Selector terms for subnets, groups, images and reservations.

Terms of a list are alternatives; what stands in one term must hold together.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets
from karpenter_provider_aws.api.families import ALIAS_FAMILIES

__all__ = [
    "AmiTerm",
    "CapacityReservationTerm",
    "PlacementGroupSelector",
    "SecurityGroupTerm",
    "SubnetTerm",
    "Tags",
]

MAX_TERMS: Final = 30
MATCH_CRITERIA: Final = ("open", "targeted")
RESERVATION_ID: Final = r"^cr-[0-9a-z]+$"
ACCOUNT_ID: Final = r"^[0-9]{12}$"

_ALIAS_NAMES: Final = ", ".join(ALIAS_FAMILIES)
_ALIAS_LIST: Final = ", ".join(f"'{name}'" for name in ALIAS_FAMILIES)

Tags = Annotated[
    dict[str, str],
    Facets(max_properties=20),
    CEL("self.all(k, k != '' && self[k] != '')", "neither key nor value of a tag may be empty"),
]
"""Tags that must all be there; the value `*` means any."""


class SubnetTerm(Model):
    """Subnets with these tags, or the one with this id."""

    cel: ClassVar = (
        CEL("has(self.tags) || has(self.id)", "a term needs tags or id"),
        CEL("!(has(self.id) && has(self.tags))", "id must be the only field of its term"),
    )

    tags: Tags = Field(default_factory=dict)
    """Tags of the subnets; the value * means any."""
    id: Annotated[str, Facets(pattern="subnet-[0-9a-z]+")] = ""
    """Id of one subnet."""


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
    id: Annotated[str, Facets(pattern="sg-[0-9a-z]+")] = ""
    """Id of one security group."""
    name: str = ""
    """The group's name in EC2, which is not its tag Name."""


class CapacityReservationTerm(Model):
    """Capacity reservations (on demand, or blocks) to launch into."""

    cel: ClassVar = (
        CEL(
            "has(self.tags) || has(self.id) || has(self.instanceMatchCriteria)",
            "a term needs tags, id or instanceMatchCriteria",
        ),
        CEL(
            "!(has(self.id) && "
            "(has(self.tags) || has(self.ownerID) || has(self.instanceMatchCriteria)))",
            "id must be the only field of its term",
        ),
    )

    tags: Tags = Field(default_factory=dict)
    """Tags of the reservations; the value * means any."""
    id: Annotated[str, Facets(pattern=RESERVATION_ID)] = ""
    """Id of one reservation."""
    owner_id: Annotated[str, Facets(pattern=ACCOUNT_ID)] = ""
    """Account that owns the reservations."""
    instance_match_criteria: Annotated[str, Facets(enum=MATCH_CRITERIA)] = ""
    """Whether any matching instance uses the reservation, or only one that names it."""


class AmiTerm(Model):
    """Images (AMIs) by the alias of a family, or by tags, name, id or SSM parameter."""

    cel: ClassVar = (
        CEL(
            "has(self.tags) || has(self.id) || has(self.name) || has(self.alias) || "
            "has(self.ssmParameter)",
            "a term needs tags, id, name, alias or ssmParameter",
        ),
        CEL(
            "!(has(self.id) && "
            "(has(self.alias) || has(self.tags) || has(self.name) || has(self.owner)))",
            "id excludes alias, tags, name and owner in its term",
        ),
        CEL(
            "!(has(self.alias) && (has(self.tags) || has(self.name) || has(self.owner)))",
            "alias excludes id, tags, name and owner in its term",
        ),
    )

    alias: Annotated[
        str,
        Facets(max_length=30),
        CEL("self.matches('^[a-zA-Z0-9]+@.+$')", "an alias has the form family@version"),
        CEL(
            f"self.split('@')[0] in [{_ALIAS_LIST}]",
            f"the family of an alias is one of {_ALIAS_NAMES}",
        ),
        CEL(
            "!self.startsWith('windows') || self.matches('^[a-z0-9]+@latest$')",
            "aliases of Windows have no other version than latest",
        ),
    ] = ""
    """Images that the vendor of a family publishes, as family@version or family@latest.

    It must be the only term.
    """
    tags: Tags = Field(default_factory=dict)
    """Tags of the images; the value * means any."""
    id: Annotated[str, Facets(pattern="ami-[0-9a-z]+")] = ""
    """Id of one image."""
    name: str = ""
    """Name of the images in EC2, which is not their tag Name; may hold wildcards."""
    owner: str = ""
    """Owner of the images: an account, self, amazon or aws-marketplace."""
    ssm_parameter: str = ""
    """Name or ARN of an SSM parameter that holds the id of an image."""


class PlacementGroupSelector(Model):
    """One placement group, by name or by id."""

    cel: ClassVar = (
        CEL("has(self.name) || has(self.id)", "name or id is needed"),
        CEL("!(has(self.name) && has(self.id))", "name and id exclude each other"),
    )

    name: Annotated[str, Facets(min_length=1)] = ""
    """Name of the group."""
    id: Annotated[str, Facets(pattern="^pg-[0-9a-z]+$")] = ""
    """Id of the group."""
