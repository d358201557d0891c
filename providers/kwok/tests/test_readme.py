"""The README agrees with the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from karpenter_core.api.durations import format_duration
from karpenter_provider_kwok.catalogue import load_catalogue
from karpenter_provider_kwok.faults import KwokFaultKind, load_faults
from karpenter_provider_kwok.settings import SETTINGS

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_every_setting_has_its_row():
    for spec in SETTINGS:
        default = f"`{format_duration(spec.default)}`" if spec.default != "" else ""
        row = f"| `{spec.flag}` | `{spec.env}` | {default} | {spec.help} |".replace("|  |", "| |")
        assert row in README


def test_every_fault_has_its_row():
    rows = re.findall(r"^\| `([a-z-]+)` \| (?!`[A-Z])", README, re.MULTILINE)
    assert rows == [kind.value for kind in KwokFaultKind]


def test_the_examples_are_read():
    catalogue, with_devices, faults = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    assert [it.name for it in load_catalogue(catalogue, file="README")] == ["c-2x-amd64-linux"]
    (declaring,) = load_catalogue(with_devices, file="README")
    assert len(declaring.devices.templates[0].devices) == 2
    assert len(declaring.devices.bindings[0].devices) == 2
    assert len(load_faults(faults, file="README")) == len(json.loads(faults))
