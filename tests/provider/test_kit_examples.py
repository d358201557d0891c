"""The examples of docs/reference/provider-kit.md run, and name every module of the kit."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from karpenter_core.operator.clock import SystemClock
from karpenter_core.testing.conformance.test_loading import PUBLIC_MODULES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "provider-kit.md").read_text()
KIT = "karpenter_core.provider.kit."


def test_page_names_every_module_of_the_kit():
    named = {
        name.partition(".")[0]
        for quoted in re.findall(r"`([a-z_.]+)`", PAGE)
        for name in [quoted.removeprefix(KIT)]
    }
    modules = {name.removeprefix(KIT) for name in PUBLIC_MODULES if name.startswith(KIT)}
    assert modules - named == set()


def test_examples_run_in_their_order(tmp_path):
    clock = SystemClock()
    names = {
        "clock": clock,
        "now": clock.now(),
        "registry": CollectorRegistry(),
        "folder": tmp_path,
        "context": SimpleNamespace(settings={"mycloud-timeout": timedelta(seconds=20)}),
    }
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) > 15
    for example in examples:
        exec(example, names)
