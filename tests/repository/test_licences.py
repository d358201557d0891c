"""Every package that a release ships has a licence that the Apache License 2.0 goes with.

Licences are read from the metadata of the installed packages; nothing is asked of a network.
"""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SHIPPED = [
    "karpenter-core[otel,tui]",
    "karpenter-provider-kwok",
    "karpenter-provider-aws",
    "karpenter-provider-alibabacloud",
    "karpenter-provider-azure",
]
ALLOWED = re.compile(
    r"(apache|mit|bsd|isc|psf|python software foundation|python-2\.0|mozilla public license 2\.0"
    r"|mpl[- ]2\.0|unlicense|0bsd|zlib|cc0)",
    re.IGNORECASE,
)
FORBIDDEN = re.compile(
    r"\b(a|l)?gpl|affero|gnu |sspl|busl|business source|proprietary", re.IGNORECASE
)


def shipped(*roots: str) -> dict[str, metadata.Distribution]:
    """Return the installed distributions that these need, by name."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(root), "") for root in roots]
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            found[name] = metadata.distribution(name)
            left += [(Requirement(text), wanted) for text in found[name].requires or ()]
    return found


def licence_of(found: metadata.Distribution) -> str:
    """Return the licence that the metadata names: an expression, classifiers, or a short text."""
    expression = found.metadata.get("License-Expression") or ""
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in found.metadata.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    text = (found.metadata.get("License") or "").strip()
    return expression or "; ".join(classifiers) or text.partition("\n")[0][:80]


@pytest.mark.parametrize(("name", "found"), sorted(shipped(*SHIPPED).items()))
def test_a_shipped_package_has_an_allowed_licence(name: str, found: metadata.Distribution) -> None:
    licence = licence_of(found)
    assert ALLOWED.search(licence), f"{name} {found.version}: {licence or 'no licence'}"
    assert not FORBIDDEN.search(licence), f"{name} {found.version}: {licence}"


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "GNU AFFERO 3", "LGPLv2+", "BUSL-1.1", "Proprietary", ""]
)
def test_other_licences_are_refused(licence: str) -> None:
    assert FORBIDDEN.search(licence) or not ALLOWED.search(licence)
