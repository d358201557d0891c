"""Writes docs/reference/provider-types.md from the docstrings of the contract and its errors.

    python docs/provider_types.py

A test compares the page with the code.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "provider-types.md"
CORE: Final = ROOT / "karpenter_core"

HEAD: Final = """\
# Types and errors of the provider contract

`docs/provider_types.py` writes this page from the docstrings of the code. [The contract](../provider-contract.md) says
when values are passed. All types are frozen dataclasses with keyword arguments, if nothing else is said.
"""

ROOMS: Final = (
    "info",
    "node_class",
    "launch",
    "instances",
    "interruptions",
    "findings",
    "context",
    "conversion",
)
"""Modules of the contract in the order of the page."""

SECTIONS: Final = (
    (
        "Arguments and results of hooks",
        "`karpenter_core.provider.contract`",
        tuple(CORE / "provider" / "contract" / f"{room}.py" for room in ROOMS),
        (),
    ),
    (
        "Errors",
        "`karpenter_core.errors`. A hook raises them, or returns them as outcomes",
        (CORE / "errors.py",),
        (
            "CloudProviderError",
            "NodeClaimNotFoundError",
            "InsufficientCapacityError",
            "ExhaustedScope",
            "OfferingKey",
            "QuotaGroup",
            "NodeClassNotReadyError",
            "ThrottledError",
            "AuthError",
            "LaunchFailedError",
            "TerminationRefusedError",
            "SettingsError",
            "BadInputError",
            "FencedError",
        ),
    ),
    (
        "Instance types",
        "`karpenter_core.provider.catalogue`",
        (CORE / "scheduling" / "instance_types.py",),
        ("InstanceType", "Offering", "Overhead"),
    ),
    ("Prices", "`karpenter_core.provider.catalogue`", (CORE / "api" / "prices.py",), ("Price",)),
    (
        "Interruptions",
        "`karpenter_core.provider.contract`",
        (CORE / "api" / "interruptions.py",),
        ("InterruptionKind",),
    ),
    (
        "Simulated cloud of a demo",
        "`karpenter_core.provider.kit.demo_cloud`",
        (CORE / "provider" / "kit" / "demo_cloud.py",),
        ("DemoCloud", "DemoFeature", "DemoInstance", "LoggedLaunchCall"),
    ),
)
"""Title, module, source files, and the classes in their order; without any, all public ones."""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for title, module, sources, names in SECTIONS:
        classes = {
            node.name: node
            for path in sources
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef)
        }
        wanted = names or tuple(name for name in classes if not name.startswith("_"))
        parts.append(f"## {title}\n\n{module}.\n")
        parts += [_class_text(classes[name]) for name in wanted]
    return "\n".join(parts)


def _class_text(node: ast.ClassDef) -> str:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    heading = f"### `{node.name}({bases})`" if bases else f"### `{node.name}`"
    parts = [f"{heading}\n\n{_prose(ast.get_docstring(node) or '')}\n"]
    rows = list(_rows(node))
    if rows:
        parts.append("| name | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _rows(node: ast.ClassDef) -> Iterator[str]:
    """Yield the fields, constants and public methods of a class."""
    for index, statement in enumerate(node.body):
        said = _text_below(node.body, index)
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                default = _default(statement.value)
                yield _row(name, ast.unparse(statement.annotation).strip("'\""), default, said)
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
                yield _row(name, "", ast.unparse(statement.value), said)
            case ast.FunctionDef(name="__init__") | ast.AsyncFunctionDef(name="__init__"):
                yield from _arguments(statement)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("_"):
                    yield _method_row(statement)
            case _:
                pass


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    arguments = function.args
    named = [(each, None) for each in arguments.args[1:]]
    named += list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    for argument, default in named:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        yield _row(argument.arg, annotation, _default(default), "")


def _method_row(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    is_property = any(ast.unparse(each) == "property" for each in function.decorator_list)
    result = ast.unparse(function.returns) if function.returns else ""
    arguments = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
    shown = ", ".join(name for name in arguments if name not in {"self", "cls"})
    name = function.name if is_property else f"{function.name}({shown})"
    return _row(name, result, "", ast.get_docstring(function) or "")


def _text_below(body: Sequence[ast.stmt], index: int) -> str:
    following = body[index + 1] if index + 1 < len(body) else None
    match following:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return textwrap.dedent(text)
        case _:
            return ""


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    text = ast.unparse(value)
    if text.startswith("field("):
        made = ast.unparse(value.keywords[0].value) if isinstance(value, ast.Call) else text
        return f"{made.partition('[')[0]}()"
    return text


def _row(name: str, annotation: str, default: str, text: str) -> str:
    cells = [f"`{name}`", _code(annotation), _code(default), _prose(text).replace("\n", " ")]
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _prose(text: str) -> str:
    """Return a docstring in lines of any length, its paragraphs kept."""
    paragraphs = textwrap.dedent(text).strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
