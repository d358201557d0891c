"""Selects from requirements.lock the packages that one image or one tool needs."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["PROVIDERS", "TOOLS", "locked_requirements", "requirement_names"]

PROVIDERS: Final = ("alibabacloud", "aws", "azure", "kwok")
TOOLS: Final = ("cyclonedx-bom", "hatchling", "packaging", "setuptools", "uv")
"""Packages that build an image; all of them are pinned by requirements.lock too."""

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ENTRY: Final = re.compile(r"^([a-z0-9][a-z0-9._-]*)==", re.MULTILINE)
_USER: Final = re.compile(r"^    #(?: via)? +([a-z0-9][a-z0-9._-]*)", re.MULTILINE)
_OURS: Final = "karpenter-"


def requirement_names(project: Path) -> set[str]:
    """Return the names of the packages that a pyproject.toml requires; our own are left out."""
    dependencies = tomllib.loads(project.read_text())["project"]["dependencies"]
    names = {_normalised(found[0]) for found in map(_NAME.match, dependencies) if found}
    return {name for name in names if not name.startswith(_OURS)}


def locked_requirements(lock: str, roots: Iterable[str]) -> str:
    """Return the entries, with hashes, of these packages and of all that they may need.

    The lock names the users of each package. That is more than is needed where a package is used
    only on other systems or by an optional part: `images.layer` removes the rest.

    Raises:
        ValueError: the lock does not have one of these packages.
    """
    entries: dict[str, list[str]] = {}
    for text in re.split(r"\n(?=[a-z0-9])", lock):
        if found := _ENTRY.match(text):
            entries.setdefault(found[1], []).append(text)
    users = {name: set(_USER.findall("\n".join(each))) - {"via"} for name, each in entries.items()}
    chosen = set(roots)
    if missing := sorted(chosen - entries.keys()):
        raise ValueError(f"requirements.lock: no entry for {', '.join(missing)}; run: make lock")
    while added := {name for name, used_by in users.items() if used_by & chosen} - chosen:
        chosen |= added
    return "".join(f"{text.rstrip()}\n" for name in sorted(chosen) for text in entries[name])


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
