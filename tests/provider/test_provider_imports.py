"""docs/provider-imports.md lists all that a provider written before the changes has to rename."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import CloudTrouble, ConformanceSubject

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "provider-imports.md").read_text("utf-8")
OLD_PROVIDER = Path(__file__).parent / "old_minimal_provider.txt"
MODULES = re.findall(
    r"^\| `(karpenter_core\.[\w.]+)` \| `(karpenter_core\.[\w.]+)` \|$", PAGE, re.MULTILINE
)
NAMES = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \| `([\w.]+)` \|$", PAGE, re.MULTILINE)


def has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def has_member(owner: type, name: str) -> bool:
    """Say whether a class has this method or field, with or without a default."""
    fields = {field for base in owner.__mro__ for field in getattr(base, "__annotations__", ())}
    return name in fields or hasattr(owner, name)


def migrated(text: str) -> str:
    """Rename in a module what the page lists, and nothing else."""
    for old, new in MODULES:
        text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    for module, old, new in NAMES:
        if f"karpenter_core.{module}" in text and "." not in old:
            text = re.sub(rf"\b{old}\b", new, text)
    return text


def test_the_tables_are_read():
    assert len(MODULES) > 30
    assert len(NAMES) > 100


@pytest.mark.parametrize(("old", "new"), MODULES)
def test_a_listed_module_has_moved(old: str, new: str):
    assert (has_module(old), has_module(new)) == (False, True)


@pytest.mark.parametrize(("module", "old", "new"), NAMES)
def test_a_listed_name_has_changed(module: str, old: str, new: str):
    space = importlib.import_module(f"karpenter_core.{module}")
    owner, _, member = new.rpartition(".")
    if owner:
        assert has_member(getattr(space, owner), member)
        assert not has_member(getattr(space, owner), old.rpartition(".")[2])
    else:
        assert hasattr(space, new)
        assert not hasattr(space, old)


def test_every_trouble_that_the_page_names_as_new_exists():
    section = PAGE.partition("## Additions")[2]
    assert {CloudTrouble[name] for name in re.findall(r"`CloudTrouble\.(\w+)`", section)}


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ConformanceSubject]:
    """Declare an old provider, with the renames of the page, to the conformance kit."""
    text = migrated(OLD_PROVIDER.read_text("utf-8"))
    (tmp_path / "old_minimal_provider.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    from old_minimal_provider import MinimalNodeClass, MinimalProvider

    yield ConformanceSubject(
        name="minimal",
        make=MinimalProvider,
        node_class=MinimalNodeClass(metadata=ObjectMeta(name="default", uid="uid-of-class")),
    )
    sys.modules.pop("old_minimal_provider", None)
