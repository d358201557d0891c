"""AMI families, and the aliases (`al2023@latest`) that name their images."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["ALIAS_FAMILIES", "AmiAlias", "AmiFamily", "parse_alias"]


class AmiFamily(StrEnum):
    """The way a node is bootstrapped; values are those of `spec.amiFamily`."""

    AL2 = "AL2"
    AL2023 = "AL2023"
    BOTTLEROCKET = "Bottlerocket"
    CUSTOM = "Custom"
    WINDOWS2019 = "Windows2019"
    WINDOWS2022 = "Windows2022"
    WINDOWS2025 = "Windows2025"


ALIAS_FAMILIES: Final = {
    family.value.lower(): family for family in AmiFamily if family is not AmiFamily.CUSTOM
}
"""By the word before the `@` of an alias."""


@dataclass(frozen=True, slots=True)
class AmiAlias:
    """A family's own images, of one version or the latest."""

    family: AmiFamily
    version: str
    """As the user wrote it: `latest`, `v20240625`, `1.10.0`."""

    @property
    def is_latest(self) -> bool:
        """Whether the newest image is meant."""
        return self.version == "latest"

    def __str__(self) -> str:
        """Return the user's text."""
        return f"{self.family.value.lower()}@{self.version}"


def parse_alias(text: str) -> AmiAlias | None:
    """Read an alias; None when it is none (the API server lets in no such text)."""
    name, _, version = text.partition("@")
    family = ALIAS_FAMILIES.get(name)
    return AmiAlias(family, version) if family is not None and version else None
