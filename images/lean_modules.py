"""Leaves out of a module's code what a controller never uses, or needs only later.

Memory of a process at rest is mostly the code of its modules. So in images:

* annotations of functions are left out: nothing reads them there but commands, which are excepted;
* rules of `lean_modules.toml` name what is imported at its first use instead of at once (`late`), values
  that are made at their first use (`once`), definitions that the program never reaches (`without`) or
  that a smaller one of `lean_functions` stands for (`instead`), and the `actions` that it calls of a client.

The source files stay as they are, and so do the line numbers in tracebacks. A rule that no longer fits its
file fails the build: then the package has changed, and the rule is looked at again.
"""

from __future__ import annotations

import ast
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["LeanRule", "apply_rule", "drop_annotations", "read_rules"]

_ROOT: Final = Path(__file__).resolve().parents[1]
_RULES: Final = Path(__file__).with_name("lean_modules.toml")
_FUNCTIONS_IN: Final = Path(__file__).with_name("lean_functions")
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanRule:
    """Parts that are left out of one file, or imported late."""

    late: frozenset[str] = frozenset()
    """Imported names: functions import them where they use them, other modules by attribute."""
    once: frozenset[str] = frozenset()
    """Values of the module that functions make at their first use, and keep."""
    instead: tuple[Function, ...] = ()
    """Functions that take the place of those of the same name."""
    without: frozenset[str] = frozenset()
    """Functions and classes of the module, `Class.method` for methods, that are not there."""
    bare: frozenset[str] = frozenset()
    """Base classes whose subclasses in the module have bodies that only type checkers read."""
    actions: frozenset[str] | None = None
    """The calls that a generated client has; of each the synchronous forms stay."""


def read_rules(path: Path = _RULES) -> dict[str, LeanRule]:
    """Read the rule of each file, whose name begins in the folder of packages."""
    rules = dict[str, LeanRule]()
    for each in tomllib.loads(path.read_text())["rules"]:
        if each["file"] in rules:
            raise ValueError(f"{path.name}: {each['file']} has two rules")
        rules[each["file"]] = LeanRule(
            late=frozenset(each.get("late", ())),
            once=frozenset(each.get("once", ())),
            instead=_read_functions(each["instead"]) if "instead" in each else (),
            without=frozenset(each.get("without", ())),
            bare=frozenset(each.get("bare", ())),
            actions=_allowed_actions(each["actions"]) if "actions" in each else None,
        )
    return rules


def _allowed_actions(source: Mapping[str, str]) -> frozenset[str]:
    """Return the actions of a service that a policy allows, in lower case."""
    statements = json.loads((_ROOT / source["policy"]).read_text())["Statement"]
    names = (action.lower().partition(":") for each in statements for action in each["Action"])
    return frozenset(name for service, _, name in names if service == source["service"])


def _read_functions(name: str) -> tuple[Function, ...]:
    tree = ast.parse((_FUNCTIONS_IN / name).read_text())
    drop_annotations(tree)
    return tuple(node for node in tree.body if isinstance(node, _FUNCTIONS))


def drop_annotations(tree: ast.Module) -> None:
    """Remove the annotations of all functions; those of fields and variables stay.

    So do those of functions that `functools.singledispatch` registers by them.
    """
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and not any(map(_registers, node.decorator_list)):
            node.returns = None
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            for each in (*every, arguments.vararg, arguments.kwarg):
                if each is not None:
                    each.annotation = None


def _registers(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr == "register"


def apply_rule(tree: ast.Module, rule: LeanRule) -> None:
    """Change a module as its rule says.

    Raises:
        ValueError: the module does not have what the rule names, or needs it at once.
    """
    for name in sorted(rule.without):
        _remove_definition(tree, name)
    for function in rule.instead:
        _replace_function(tree, function)
    for name in sorted(rule.once):
        _make_once(tree, name)
    for name in sorted(rule.bare):
        _empty_subclasses(tree, name)
    if rule.actions is not None:
        _keep_actions(tree, rule.actions)
    if rule.late:
        _import_late(tree, rule.late)
    ast.fix_missing_locations(tree)


def _remove_definition(tree: ast.Module, name: str) -> None:
    body, node = _find_definition(tree, name)
    body.remove(node)
    if not body:
        body.append(ast.Pass())


def _replace_function(tree: ast.Module, new: Function) -> None:
    """Put a function in the place of another, with the line number of the beginning of that."""
    body, old = _find_definition(tree, new.name)
    if not isinstance(old, _FUNCTIONS) or ast.dump(old.args) != ast.dump(new.args):
        raise ValueError(f"has no {new.name} with the arguments of the one in its place")
    body[body.index(old)] = _copied(new, old)


def _make_once(tree: ast.Module, name: str) -> None:
    """Let a value be made by the first function that uses it: `NAME = cache(lambda: value)`."""
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == name
    ]
    if len(found) != 1:
        raise ValueError(f"does not set {name} once")
    if name in _names_used_at_once(ast.Module([n for n in tree.body if n is not found[0]], [])):
        raise ValueError(f"needs {name} when it is loaded")
    value = ast.unparse(found[0].value)
    made = ast.parse(f"__import__('functools').cache(lambda: {value})", mode="eval").body
    for function in _outermost_functions(tree):
        if name in _bound_names(function):
            raise ValueError(f"{function.name} has a name of its own {name}")
        _CallOf(name).visit(function)
    found[0].value = made


class _CallOf(ast.NodeTransformer):
    """Calls what has a name where its value was read."""

    def __init__(self, name: str) -> None:
        self._name: Final = name

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Call(node, [], []), node) if node.id == self._name else node


def _keep_actions(tree: ast.Module, actions: frozenset[str]) -> None:
    (client,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    methods = {node.name for node in client.body if isinstance(node, _FUNCTIONS)}
    suffix = "_with_options"
    every = {name.removesuffix(suffix) for name in methods if name.endswith(suffix)}
    kept = {name for name in every if name.replace("_", "") in actions}
    missing = actions - {name.replace("_", "") for name in kept}
    if missing:
        raise ValueError(f"has no method for {', '.join(sorted(missing))}")
    removed = {f"{name}{each}" for name in every for each in ("_async", f"{suffix}_async")}
    removed |= {f"{name}{each}" for name in every - kept for each in ("", suffix)}
    client.body = [
        node for node in client.body if not (isinstance(node, _FUNCTIONS) and node.name in removed)
    ]


def _empty_subclasses(tree: ast.Module, base: str) -> None:
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and base in {ast.unparse(each) for each in node.bases}
    ]
    if not found:
        raise ValueError(f"has no subclass of {base}")
    for node in found:
        node.body = [ast.Pass()]


def _find_definition(tree: ast.Module, name: str) -> tuple[list[ast.stmt], ast.ClassDef | Function]:
    body = tree.body
    *classes, last = name.split(".")
    for each in classes:
        body = _definition_in(body, each, name).body
    return body, _definition_in(body, last, name)


def _definition_in(body: list[ast.stmt], name: str, wanted: str) -> ast.ClassDef | Function:
    for node in body:
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)) and node.name == name:
            return node
    raise ValueError(f"has no {wanted}")


def _import_late(tree: ast.Module, names: frozenset[str]) -> None:
    """Take imports out of the module, and into the functions that use what they bind."""
    imports = _take_imports(tree, names)
    roots = {name.partition(".")[0] for name in names}
    early = roots & _names_used_at_once(tree)
    if early:
        raise ValueError(f"needs {', '.join(sorted(early))} when it is loaded")
    for function in _outermost_functions(tree):
        hidden = roots & _bound_names(function)
        if hidden:
            raise ValueError(f"{function.name} has a name of its own {', '.join(sorted(hidden))}")
        for name, statement in imports:
            _import_where_used(function.body, name.partition(".")[0], statement)
    _answer_for(tree, [(name, each) for name, each in imports if "." not in name])


def _take_imports(tree: ast.Module, names: frozenset[str]) -> list[tuple[str, ast.stmt]]:
    found = list[tuple[str, ast.stmt]]()
    for statement in [*tree.body]:
        if not isinstance(statement, (ast.Import, ast.ImportFrom)):
            continue
        for alias in [*statement.names]:
            name = alias.asname or alias.name
            if name not in names:
                continue
            statement.names.remove(alias)
            taken = (
                ast.ImportFrom(statement.module, [alias], statement.level)
                if isinstance(statement, ast.ImportFrom)
                else ast.Import([alias])
            )
            found.append((name, taken))
        if not statement.names:
            tree.body.remove(statement)
    missing = names - {name for name, _ in found}
    if missing:
        raise ValueError(f"imports no {', '.join(sorted(missing))}")
    return found


def _names_used_at_once(tree: ast.Module) -> set[str]:
    """Return the names that are looked up while the module is loaded."""
    used = set[str]()
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            defaults = [each for each in node.args.kw_defaults if each is not None]
            waiting += [*node.decorator_list, *node.args.defaults, *defaults]
            continue
        if isinstance(node, ast.Name):
            used.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return used


def _outermost_functions(tree: ast.Module) -> list[Function]:
    found = list[Function]()
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            found.append(node)
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def _bound_names(function: Function) -> set[str]:
    """Return the parameters and variables of a function, and of those inside."""
    nodes = [*ast.walk(function)]
    return {node.arg for node in nodes if isinstance(node, ast.arg)} | {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }


def _import_where_used(block: list[ast.stmt], name: str, statement: ast.stmt) -> None:
    """Import a name in the innermost blocks that use it: other ways through a function do without."""
    for position, node in enumerate(block):
        inner = _inner_blocks(node)
        within = {id(each) for each in ast.walk(node) if _is_use(each, name)}
        deeper = {id(each) for part in inner for each in _walk_all(part) if _is_use(each, name)}
        if within != deeper:
            block.insert(position, _copied(statement, node))
            return
        for part in inner:
            _import_where_used(part, name, statement)


def _inner_blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    match node:
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While():
            return [node.body, node.orelse]
        case ast.With() | ast.AsyncWith():
            return [node.body]
        case ast.Try():
            return [node.body, *(each.body for each in node.handlers), node.orelse, node.finalbody]
        case _:
            return []


def _walk_all(block: list[ast.stmt]) -> Iterator[ast.AST]:
    return (node for statement in block for node in ast.walk(statement))


def _is_use(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _copied(statement: ast.stmt, place: ast.stmt) -> ast.stmt:
    (copy,) = ast.parse(ast.unparse(statement)).body
    for node in ast.walk(copy):
        ast.copy_location(node, place)
    return copy


def _answer_for(tree: ast.Module, imports: list[tuple[str, ast.stmt]]) -> None:
    """Let other modules find the names: the module imports them when they are asked for (PEP 562)."""
    own = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
    ]
    asked = own[0].args.args[0].arg if own else "name"
    lines = list[str]()
    for name, statement in imports:
        lines += [f"if {asked} == {name!r}:", f"    {ast.unparse(statement)}", f"    return {name}"]
    if own:
        own[0].body[:0] = ast.parse("\n".join(lines)).body
        return
    lines.append("raise AttributeError(f'module {__name__!r} has no attribute {name!r}')")
    tree.body += ast.parse(
        "def __getattr__(name):\n" + "\n".join(f"    {line}" for line in lines)
    ).body
