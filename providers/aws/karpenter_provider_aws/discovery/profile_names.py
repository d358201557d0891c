"""Names instance profiles, and tells the cluster's own.

Pure functions of values: names, paths and tags of the profiles that the provider creates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import REGION
from karpenter_provider_aws.labels import (
    CLUSTER_TAG_PREFIX,
    EKS_CLUSTER_NAME_TAG,
    NODE_CLASS_TAG,
    OWNED,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "InstanceProfile",
    "legacy_profile_name",
    "profile_name",
    "profile_path",
    "profile_tags",
    "profiles_below",
    "role_name",
]

_VALID_NAME: Final = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceProfile:
    """An instance profile; it has one role, or none."""

    name: str
    path: str
    role: str = ""


def profile_name(*, cluster: str, region: str, node_class: str, unique: str) -> str:
    """Return the name of a new profile; `unique` makes it another one each time."""
    return f"{cluster}_{_digest(region + node_class + unique)}"


def legacy_profile_name(*, cluster: str, region: str, node_class: str) -> str:
    """Return the name that Karpenter once gave the one profile of a NodeClass.

    Empty when IAM would not take it: then there never was one.
    """
    name = f"{cluster}_{_digest(region + node_class)}"
    return name if _VALID_NAME.fullmatch(name) else ""


def profile_path(*, cluster: str, region: str, uid: str = "") -> str:
    """Return the IAM path of a NodeClass's profiles, or what those of all NodeClasses begin with."""
    return "/".join(("", "karpenter", region, cluster, *([uid] if uid else []), ""))


def profile_tags(
    tags: Mapping[str, str], *, cluster: str, region: str, node_class: str
) -> dict[str, str]:
    """Return the tags of a profile: the user's, and those by which it is known as ours."""
    return {
        **tags,
        f"{CLUSTER_TAG_PREFIX}{cluster}": OWNED,
        EKS_CLUSTER_NAME_TAG: cluster,
        NODE_CLASS_TAG: node_class,
        REGION: region,
    }


def role_name(role: str) -> str:
    """Return a role without its IAM path, which a profile does not name."""
    return role.rpartition("/")[2] or role


def profiles_below(profiles: Iterable[InstanceProfile], prefix: str) -> list[InstanceProfile]:
    """Return the profiles whose path begins with a prefix, whatever listing they come from."""
    return [profile for profile in profiles if profile.path.startswith(prefix)]


def _digest(text: str) -> int:
    """Return the 64-bit FNV-1 hash, which is in the names of profiles that exist."""
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest * 0x100000001B3) % 2**64 ^ byte
    return digest
