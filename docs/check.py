"""Check the documentation; with `--write`, first write its generated tables anew.

Checked are the generated tables, relative links, that every module in code style (`drift.py`) exists, that every YAML
block is YAML, and that every object of our own kinds in one would be admitted by the API server, CEL rules included.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kind_reference
import provider_types
import yaml

from karpenter_core.api.schema import SchemaValidator
from karpenter_core.controllers.metrics.process_metrics import Metrics, metrics_table
from karpenter_core.operator.options import options_table as settings_table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]


def chart_table() -> str:
    """Return the table of the values of the chart."""
    sys.path.insert(0, str(ROOT))
    from charts.generate.settings_table import chart_settings
    from charts.generate.values_file import values_of, values_table

    text = (ROOT / "charts" / "karpenter" / "values.yaml").read_text()
    return values_table(values_of(text), chart_settings())


TABLES = {
    "docs/install.md": chart_table,
    "docs/reference/settings.md": settings_table,
    "docs/reference/metrics.md": lambda: metrics_table(Metrics()),
}
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
CODE = re.compile(r"`[^`\n]*`")
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")
YAML_BLOCK = re.compile(r"^ *```ya?ml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def main() -> int:
    """Return the number of problems, at most 1."""
    if "--write" in sys.argv[1:]:
        for name, render in TABLES.items():
            write_table(ROOT / name, render())
        provider_types.PAGE.write_text(provider_types.page(), encoding="utf-8")
        for page, text in kind_reference.pages().items():
            page.write_text(text, encoding="utf-8")
    problems = [problem for page in pages() for problem in check(page)]
    problems += [
        f"{name}: a table is stale: run make docs"
        for name, render in TABLES.items()
        if render() not in (ROOT / name).read_text()
    ]
    problems += [
        f"{page.relative_to(ROOT)} is stale: run make docs"
        for page, text in kind_reference.pages().items()
        if not page.exists() or page.read_text(encoding="utf-8") != text
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(problems)} problems in {len(pages())} pages")
    return min(len(problems), 1)


def pages() -> list[Path]:
    """Return every committed Markdown file."""
    listing = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for path in (ROOT / line for line in listing.stdout.splitlines()) if path.exists()]


@cache
def modules() -> tuple[str, ...]:
    """Return the paths of all Python files of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(listed.stdout.split())


def write_table(page: Path, table: str) -> None:
    """Replace the page's table that has the same heading."""
    heading = table.partition("\n")[0]
    text = page.read_text()
    for match in TABLE.finditer(text):
        if match[0].startswith(heading):
            fresh = text[: match.start()] + table.rstrip("\n") + "\n" + text[match.end() :]
            if fresh != text:
                page.write_text(fresh)
            return
    raise SystemExit(f"{page}: no table with the heading {heading}")


def check(page: Path) -> Iterator[str]:
    """Yield what is wrong with a page."""
    text = page.read_text()
    name = page.relative_to(ROOT)
    for match in LINK.finditer(CODE.sub("", text)):
        target = match[1]
        is_local = "://" not in target and not target.startswith("mailto:")
        if is_local and not (page.parent / target).exists():
            yield f"{name}: link to {target}, which does not exist"
    for match in MODULE.finditer(text):
        if not any(f"/{path}".endswith(f"/{match[1]}") for path in modules()):
            yield f"{name}: module {match[1]}, which does not exist"
    for match in YAML_BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        try:
            documents = list(yaml.safe_load_all(match[1]))
        except yaml.YAMLError as error:
            yield f"{name}:{line}: {error}"
            continue
        for document in documents:
            for problem in refusals(document):
                yield f"{name}:{line}: {problem}"


def refusals(document: Any) -> Iterator[str]:
    """Yield why the API server would refuse an object, if it is of one of our kinds."""
    if not isinstance(document, dict):
        return
    schema = schemas().get((document.get("apiVersion"), document.get("kind")))
    if schema is None:
        return
    validator = SchemaValidator(schema)
    for error in validator.validate(validator.default(document)):
        yield f"{document['kind']}: {error}"


def schemas() -> dict[tuple[str, str], Any]:
    """Return the schema of each version in crds/, by apiVersion and kind."""
    found: dict[tuple[str, str], Any] = {}
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            found[key] = version["schema"]["openAPIV3Schema"]
    return found


if __name__ == "__main__":
    sys.exit(main())
