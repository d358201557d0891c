"""Manifests of guides and articles, converted: the output is compared byte by byte.

The inputs have the fields of published examples for v1alpha5 and v1beta1.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from karpenter_core.cli.convert import sources
from karpenter_core.cli.main import build_app

GOLDEN = Path(__file__).parent / "golden"
INPUTS = sorted(GOLDEN.glob("*.in.*"))


def convert(*arguments: str, text: str | None = None):
    return CliRunner().invoke(build_app(["convert"]), ["convert", *arguments], input=text)


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.name.split(".")[0])
def test_a_published_manifest_becomes_exactly_this(source):
    result = convert(str(source))

    expected = source.with_name(f"{source.name.split('.')[0]}.out.yaml").read_text()
    assert (result.exit_code, result.stdout) == (0, expected)


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.name.split(".")[0])
def test_an_api_server_admits_converted_published_manifests(source):
    result = convert(str(source))

    assert "0 errors of admission" in " ".join(result.stderr.split())


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.name.split(".")[0])
def test_no_comment_is_lost(source):
    comments = [
        line.partition("# ")[2].strip() for line in source.read_text().splitlines() if "# " in line
    ]

    written = convert(str(source)).stdout

    assert [comment for comment in comments if comment not in written] == []


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.name.split(".")[0])
def test_a_converted_manifest_is_not_converted_again(source):
    once = convert(str(source)).stdout

    again = convert("-", text=once)

    assert list(yaml.safe_load_all(again.stdout)) == list(yaml.safe_load_all(once))
    assert "0 documents converted" in again.stderr


def test_a_manifest_in_json_becomes_the_same(tmp_path):
    source = GOLDEN / "v1beta1.in.yaml"
    items = list(yaml.safe_load_all(source.read_text()))
    file = tmp_path / "list.json"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))

    result = convert(str(file))

    expected = yaml.safe_load_all((GOLDEN / "v1beta1.out.yaml").read_text())
    assert list(yaml.safe_load_all(result.stdout)) == list(expected)


@pytest.mark.parametrize(("limit", "lines"), [(10, 1), (10**9, 0)])
def test_the_wait_for_a_large_text_is_told(tmp_path, monkeypatch, limit, lines):
    monkeypatch.setattr(sources, "LARGE_TEXT", limit)
    file = tmp_path / "large.yaml"
    file.write_text((GOLDEN / "v1beta1.in.yaml").read_text())

    told = [line for line in convert(str(file)).stderr.splitlines() if "MB of YAML" in line]

    assert len(told) == lines
    assert all(line.startswith(f"{file}: reads ") for line in told)
