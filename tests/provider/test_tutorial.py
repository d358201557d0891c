"""The provider that docs/providers.md builds keeps the contract."""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.testing import conformance
from karpenter_core.testing.conformance import *  # noqa: F403

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"
SCAFFOLD = Path(conformance.__file__).parents[2] / "cli" / "scaffold"
BLOCK = re.compile(
    r"<!-- tinycloud\.py(: in class TinyCloud)? -->\n```python\n(.*?)```\n", re.DOTALL
)


def module_text():
    """Put the page's blocks together; methods stand there without their indentation."""
    blocks = BLOCK.findall(PAGE.read_text())
    return "\n\n".join(
        textwrap.indent(text, "    ") if is_method else text for is_method, text in blocks
    )


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """Import the page's code as the module `tinycloud`, and the simulated cloud beside it."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "tinycloud.py").write_text(module_text())
    before = [*sys.path]
    sys.path[:0] = [str(folder), str(SCAFFOLD)]
    try:
        import tinycloud

        from karpenter_provider_tinycloud import testing

        yield tinycloud, testing
    finally:
        sys.path[:] = before
        for name in [name for name in sys.modules if "tinycloud" in name]:
            del sys.modules[name]


@pytest.fixture
def subject(tutorial):
    tinycloud, testing = tutorial

    def node_class(**spec):
        return tinycloud.TinyCloudNodeClass(
            metadata=ObjectMeta(name="default", uid="uid-of-class", resource_version="1"),
            spec=tinycloud.TinyCloudNodeClassSpec(**spec),
        )

    with testing.subject() as scaffolded:
        yield replace(
            scaffolded,
            make=tinycloud.TinyCloud,
            node_class=node_class(),
            changed_node_class=node_class(disk_gib=50),
            unusable_node_classes={"no-such-image": node_class(image="no-such-image")},
        )


def test_the_tutorial_is_less_than_two_hundred_and_fifty_lines():
    lines = [line for line in module_text().splitlines() if line.strip()]
    assert 150 < len(lines) < 250
