"""Text of `karpenter top`: bars, amounts, and frames that fit their width."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.cli.top.frame import frame_lines, node_table
from karpenter_core.cli.top.order import Sorting, sort_nodes
from karpenter_core.cli.top.text import (
    TextSpan,
    Tone,
    age_text,
    amount_text,
    bar,
    clipped,
    plain,
    price_text,
    share_tone,
)
from karpenter_core.cli.top.view import ResourceUse
from tests.cli.top.clusters import read_view, write_cluster

SHARES = st.floats(-1, 3)


@given(SHARES, st.integers(0, 40), st.booleans())
def test_a_bar_has_its_width(share, width, ascii_only):
    text = bar(share, width, ascii_only=ascii_only)

    assert len(text) == width
    assert text.isascii() or not ascii_only


@given(SHARES, SHARES, st.integers(1, 40))
def test_a_larger_share_has_no_shorter_bar(one, other, width):
    less, more = sorted((one, other))
    filled = [bar(share, width, ascii_only=True).count("#") for share in (less, more)]

    assert filled[0] <= filled[1]


@pytest.mark.parametrize(
    ("share", "text"), [(0, "░░░░"), (0.5, "██░░"), (0.53, "██▏░"), (1, "████"), (9, "████")]
)
def test_a_bar_is_filled_by_eighths(share, text):
    assert bar(share, 4) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 16000, "16"),
        ("memory", 3 << 29, "1.5Gi"),
        ("memory", 12, "12"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_amounts_are_short(resource, amount, text):
    assert amount_text(resource, amount) == text


def test_ages_and_prices_are_short():
    ages = [age_text(age) for age in (None, 0, 61, 7_300, 200_000)]

    assert ages == ["-", "0s", "61s", "2h", "2d"]
    assert [price_text(price) for price in (None, 0, 0.0416, 0.00001)] == [
        "-", "0.0000", "0.0416", "1e-05",
    ]  # fmt: skip


def test_tones_follow_the_use():
    tones = [share_tone(ResourceUse(used, 100)) for used in (95, 70, 10)]

    assert tones == [Tone.GOOD, Tone.FAIR, Tone.BAD]
    assert share_tone(ResourceUse(1, 0)) is Tone.DIM
    assert ResourceUse(1, 0).share == 1.0


@given(st.lists(st.text("abc", max_size=8), max_size=5), st.integers(0, 30))
def test_a_clipped_line_fits(texts, width):
    line = tuple(map(TextSpan, texts))
    text = "".join(span.text for span in clipped(line, width))

    assert len(text) <= width
    assert text == "".join(texts) or text.endswith("…") or width == 0


@pytest.fixture
async def view(tmp_path):
    return await read_view(tmp_path)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140])
def test_a_frame_fits_its_width(view, width):
    rows = sort_nodes(view.nodes, Sorting())
    lines = list(frame_lines(view, rows, width=width))

    assert max(map(len, lines)) <= width


def test_80_columns_have_the_important_columns(view):
    heading = plain(node_table(view, view.nodes, width=80).heading).split()

    assert set(heading) >= {"NODE", "TYPE", "CAP", "AGE", "STATE", "CPU", "MEM", "PODS", "PRICE"}


def test_without_a_width_nothing_is_cut(view):
    lines = list(frame_lines(view, view.nodes, width=None))

    assert not any("…" in line for line in lines)
    assert any("on-demand" in line for line in lines)
    assert "Disruption in progress" in lines


def test_ascii_frames_have_no_blocks(view):
    lines = frame_lines(view, view.nodes, width=None, ascii_only=True)

    assert all(line.isascii() for line in lines)


def test_the_printed_frame_is_plain_text(program, tmp_path):
    """Without a terminal one frame is printed, without escape sequences."""
    shown = program("top", *write_cluster(tmp_path), "--sort", "cpu", "--filter", "pool:general")

    assert "\x1b" not in shown.out
    lines = shown.out.splitlines()
    assert lines[0].startswith("10 nodes (1 Launching, 1 Registering, 1 Initializing, 2 Ready,")
    assert lines[1] == "10 pods: 6 running, 6 bound, 4 pending"
    assert "7.0000 USD per hour, 5,110.00 USD per month, without 3 nodes of unknown price" in lines
    names = [line.split()[0] for line in lines if " large " in line and "general" in line]
    assert names[0] == "busy"
    assert "cordoned" not in names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sort", "colour"), "no column"),
        (("--resources", " , "), "--resources"),
        (("--node-selector", "web"), "KEY=VALUE"),
    ],
)
def test_options_that_make_no_sense_are_refused(program, tmp_path, arguments, said, capsys):
    from karpenter_core.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["top", *map(str, write_cluster(tmp_path)), *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_without_textual_the_command_names_the_extra(monkeypatch, tmp_path, capsys):
    from karpenter_core.cli.main import main
    from karpenter_core.cli.top import command

    monkeypatch.setattr(command, "_is_on_terminal", lambda: True)
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["top", *map(str, write_cluster(tmp_path))])
    assert ended.value.code == 2
    assert "in a checkout of karpenter-core: pip install '.[tui]'" in capsys.readouterr().err
    assert "textual" not in sys.modules or command.find_spec("textual") is None
