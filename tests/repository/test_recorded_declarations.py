"""The values that modules declare are those that are recorded: constants, tables and defaults.

Tests use most of them by their names, and would not see a period of nine seconds that was one of ten.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

from tests.mutants.areas import AREAS, ROOT, sources
from tests.mutants.judge import module_name
from tests.support.declared_values import declared_values
from tests.support.recorded_digests import assert_digests

RECORDED: Final = Path(__file__).with_name("recorded_declarations.json")


@pytest.mark.parametrize("area", AREAS)
def test_declared_values_are_as_recorded(area):
    (paths,) = sources(ROOT, (area,)).values()
    modules = [path for path in paths if not path.endswith("__main__.py")]
    texts = {path: declared_values(module_name(path)) for path in modules}

    assert_digests({path: text for path, text in texts.items() if text}, RECORDED)


MODULE: Final = """
from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec
from pydantic import BaseModel, Field

PERIOD = timedelta(minutes=10)
WORD = re.compile("[a-z]")


class Shade(StrEnum):
    DARK = "dark"


@dataclass(frozen=True, kw_only=True)
class Lamp:
    shade: Shade = Shade.DARK
    uses: list[str] = field(default_factory=list)
    watts: int

    @property
    def price(self, rate: float = 0.5): ...


class Pair(NamedTuple):
    left: int
    right: int = 2


class Wire(msgspec.Struct, rename="camel"):
    long_name: str
    is_live: bool = False


class Model(BaseModel):
    many: tuple[int, ...] = Field(default=(), alias="few")


def lit(lamp: Lamp, *, hours: int = 3, shades=frozenset({2, 1})): ...
"""
VALUES: Final = """
PERIOD = 0:10:00
WORD = re.compile('[a-z]')
Shade.DARK = dark
Lamp.shade: dark
Lamp.uses: list()
Lamp.watts:
Lamp.shade = dark
Lamp.price(rate=0.5)
Pair.right: 2
Wire.longName:
Wire.isLive: False
Model.few: []
lit(hours=3)
lit(shades={1, 2})
"""


def test_constants_fields_and_defaults_are_declared_values(tmp_path, monkeypatch):
    (tmp_path / "module_of_values.py").write_text(dedent(MODULE), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    assert declared_values("module_of_values") == VALUES.strip()
