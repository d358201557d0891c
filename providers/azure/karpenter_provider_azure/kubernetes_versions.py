"""Reads and compares versions of Kubernetes."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["KubernetesVersion", "parse_version"]

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?")


class KubernetesVersion(NamedTuple):
    """The numbers of a version, which compare as versions do."""

    major: int
    minor: int
    patch: int = 0


def parse_version(text: str) -> KubernetesVersion | None:
    """Return the numbers of `1.32.1` or `v1.32.1-aks`; None if the text is not a version."""
    match = _VERSION.fullmatch(text)
    return None if match is None else KubernetesVersion(*(int(it or 0) for it in match.groups()))
