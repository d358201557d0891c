"""Chooses the newest version of an image among those that galleries list."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from karpenter_provider_azure.arm.reads import properties_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.json_objects import JsonMapping

__all__ = ["is_newer", "newest_community_version", "newest_node_image_versions"]


def newest_community_version(versions: Iterable[JsonMapping]) -> str:
    """Return the name of the version that was published last; empty if there is none.

    `versions` is the list of an image definition of a community gallery. A version without a date of
    publication is not yet published, and one that the publisher excludes from the latest has been withdrawn.
    """
    dated = [
        (published, str(version.get("name") or ""))
        for version in versions
        if (published := _published(version)) is not None
        and properties_of(version).get("excludeFromLatest") is not True
    ]
    return max(dated)[1] if dated else ""


def _published(version: JsonMapping) -> datetime | None:
    try:
        published = datetime.fromisoformat(str(properties_of(version).get("publishedDate")))
    except ValueError:
        return None
    return published if published.tzinfo is not None else published.replace(tzinfo=UTC)


def newest_node_image_versions(
    listed: Iterable[JsonMapping], *, systems: Iterable[str]
) -> Mapping[tuple[str, str], str]:
    """Return the newest version by operating system and SKU, which is the name of the definition.

    `listed` is the answer of nodeImageVersions. Entries of other operating systems than `systems` are
    left out.
    """
    wanted = frozenset(systems)
    newest: dict[tuple[str, str], str] = {}
    for entry in listed:
        key = (str(entry.get("os") or ""), str(entry.get("sku") or ""))
        version = str(entry.get("version") or "")
        if key[0] in wanted and version and is_newer(version, newest.get(key, "")):
            newest[key] = version
    return newest


def is_newer(version: str, other: str) -> bool:
    """Whether a version is newer than another; every readable one is newer than an empty one.

    Versions are numbers between dots, and of two that begin alike the longer one is newer. A version
    with other parts is never newer.
    """
    numbers = _numbers(version)
    return numbers is not None and numbers > (_numbers(other) or ())


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part) for part in parts)
