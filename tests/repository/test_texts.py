"""No committed file has leftovers, private paths or package hosts."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE_HOSTS = re.compile(
    # In pieces, so that this file does not say them either.
    r"pypi\.(org|io)|python"
    r"hosted|proxy\.go"
    r"lang|sum\.go"
    r"lang|npm"
    r"js\.(org|com)"
    r"|yarn" + r"pkg\.com|crates\." + r"io|conda\." + r"io|index" + r"-url|go" + r"proxy=",
    re.IGNORECASE,
)
ALLOWED_HOST_LINES = re.compile(r"--no-emit-index" + r"-url")
LEFTOVERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|#\s*prag" + r"ma\b")
CONFLICTS = re.compile(r"(?m)^(<{7}|>{7}) \S")
IGNORED_TYPE = re.compile(r"#\s*(type|pyright):\s*ignore(\[[\w, -]+\])?(?P<reason>.*)")
QUESTION = re.compile(r"\s*(What|Which|Who|Whose|How|Where|When|Why)\b")
QUESTION_QUOTED = re.compile(rf"\"{QUESTION.pattern}")
QUESTION_COMMENT = re.compile(r"(?m)^\s*#:? (What|Which|Who|Whose|How)\b")
QUESTION_NAME = re.compile(r"def test_(what|which|who|whose|how)_")
MODULE_COLUMNS = 79
# The home of the images' own user is no private path.
PRIVATE_PATHS = re.compile(r"(?<![\w.~-])/(work|root|home)/(?!nonroot\b)\w")


def committed() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def lines_of(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    result: list[str] = []
    for path in paths:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if not pattern.search(text):
            continue
        result += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if pattern.search(line)
        ]
    return result


def python_files() -> list[Path]:
    return [path for path in committed() if path.suffix == ".py"]


def test_no_file_names_a_package_host():
    """The user's configuration decides where packages come from."""
    hits = lines_of(committed(), PACKAGE_HOSTS)

    assert [hit for hit in hits if not ALLOWED_HOST_LINES.search(hit)] == []


def test_no_leftovers():
    """Open work is kept in issues, and no line is exempt from coverage."""
    assert lines_of(python_files(), LEFTOVERS) == []


def test_no_file_has_both_sides_of_a_conflict():
    """A merge that was not finished."""
    assert lines_of(committed(), CONFLICTS) == []


def test_an_ignored_type_error_says_why():
    """An ignore without its reason, or without the rule it ignores, hides the next error too."""
    hits: list[str] = []
    for path in python_files():
        text = path.read_text()
        for number, line in enumerate(text.splitlines() if "ignore" in text else (), start=1):
            match = IGNORED_TYPE.search(line)
            if match and not (match[2] and match["reason"].strip()):
                hits.append(f"{path.relative_to(ROOT)}:{number}")

    assert hits == []


def test_docstrings_begin_with_a_verb_or_a_noun():
    """A question word makes the reader guess whether a value is a time, a number or an object."""
    # Only files with such a string are parsed: all of them take seconds.
    texts = {path: path.read_text() for path in python_files()}
    hits = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value.value.strip().splitlines()[0]}"
        for path, text in texts.items()
        if QUESTION_QUOTED.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and QUESTION.match(node.value.value)
    ]

    assert hits == []


def is_product_module(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[0] in {"karpenter_core", "providers"} and "tests" not in parts


def test_the_first_line_of_a_product_module_fits_a_table_of_contents():
    """`grep -h -m1` for the quotes over a folder shows what its modules do, unbroken."""
    beginnings = {
        path: next((line for line in path.read_text().splitlines() if '"""' in line), "")
        for path in python_files()
        if is_product_module(path)
    }
    hits = [
        f"{path.relative_to(ROOT)}: {len(line)} columns: {line}"
        for path, line in beginnings.items()
        if len(line) > MODULE_COLUMNS
    ]

    assert len(beginnings) > 1000
    assert hits == []


def test_comments_begin_with_their_subject():
    """Comments that begin with a question word leave their subject to the reader."""
    assert lines_of(python_files(), QUESTION_COMMENT) == []


def test_names_of_tests_begin_with_their_subject():
    """A name states the behaviour of something that it names."""
    assert lines_of(python_files(), QUESTION_NAME) == []


def test_no_file_names_a_private_path():
    """Paths are relative, or follow from the user's home."""
    assert lines_of([*python_files(), ROOT / "Makefile", ROOT / "README.md"], PRIVATE_PATHS) == []


@pytest.mark.parametrize("name", ["uv.lock", ".venv", "dist"])
def test_generated_things_are_not_committed(name: str):
    """They name hosts, or are personal."""
    assert not any(path.relative_to(ROOT).parts[0] == name for path in committed())
