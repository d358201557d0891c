"""Modules of images import late what they seldom need, and are the same to their users."""

from __future__ import annotations

import ast
import gc
import os
import sys
import types
import weakref
from dataclasses import FrozenInstanceError, dataclass, field, fields

import pytest
from botocore import utils

from images.lean_functions import botocore_utils
from images.lean_functions.dataclasses import _frozen_get_del_attr
from images.lean_modules import LeanRule, apply_rule, drop_annotations, read_rules

MODULE = """\
import json
import xml.dom.minidom
from statistics import mean, median as middle


def written(value):
    "."
    return json.dumps(value)


def middle_of(values):
    return middle(values)


class Reader:
    def parsed(self, text):
        def inside():
            return xml.dom.minidom.parseString(text)

        return inside().documentElement.tagName


class Shape(dict):
    size: int
    def area(self): ...
"""


def lean(text, *, instead=(), **rule):
    tree = ast.parse(text)
    names = {name: frozenset(value) for name, value in rule.items()}
    apply_rule(tree, LeanRule(instead=tuple(instead), **names))
    module = types.ModuleType("lean")
    exec(compile(tree, "lean.py", "exec", dont_inherit=True), module.__dict__)
    return module


def test_a_name_is_imported_by_the_functions_that_use_it():
    module = lean(MODULE, late=["json", "middle", "xml.dom.minidom"])

    assert {"json", "xml", "middle"} & module.__dict__.keys() == set()
    assert module.written([1]) == "[1]"
    assert module.middle_of([1, 5, 6]) == 5
    assert module.Reader().parsed("<a/>") == "a"


def test_a_late_name_is_found_by_other_modules(monkeypatch):
    module = lean(MODULE, late=["mean", "middle"])
    monkeypatch.setitem(sys.modules, "lean", module)
    other = types.ModuleType("other")

    exec("from lean import mean, middle", other.__dict__)

    assert (other.mean([1, 3]), other.middle([1, 3, 9])) == (2, 3)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = module.other


def test_a_module_that_answers_for_names_itself_goes_on_doing_so():
    own = "\ndef __getattr__(asked):\n    return f'own {asked}'\n"

    module = lean(MODULE + own, late=["mean"])

    assert module.mean([1, 3]) == 2
    assert module.other == "own other"


@pytest.mark.parametrize(
    "used",
    ["TEXT = json.dumps(1)", "class Later(json.JSONEncoder): ...", "def f(a=json.loads): ...", "f = lambda: json"],
)  # fmt: skip
def test_a_name_that_is_needed_at_once_is_never_late(used):
    with pytest.raises(ValueError, match="needs json when it is loaded"):
        lean(MODULE + used, late=["json"])


@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        ({"late": ["yaml"]}, "imports no yaml"),
        ({"without": ["Writer"]}, "has no Writer"),
        ({"without": ["Reader.written"]}, r"has no Reader\.written"),
        ({"bare": ["TypedDict"]}, "has no subclass of TypedDict"),
        ({"actions": ["describevpcs"]}, "has no method for describevpcs"),
        ({"once": ["SIZE"]}, "does not set SIZE once"),
        ({"instead": ast.parse("def written(): ...").body}, "has no written with the arguments"),
        ({"instead": ast.parse("def read(): ...").body}, "has no read"),
    ],
)
def test_a_rule_that_does_not_fit_its_file_is_refused(rule, missing):
    only = MODULE if "actions" not in rule else "class Client:\n    pass\n"

    with pytest.raises(ValueError, match=missing):
        lean(only, **rule)


@pytest.mark.parametrize(
    "function", ["def text_of(json): return json", "def text_of(a):\n if a: json = 1\n return json"]
)
def test_an_import_never_takes_the_place_of_another_name(function):
    with pytest.raises(ValueError, match="text_of has a name of its own json"):
        lean(f"import json\n\n{function}\n", late=["json"])


BRANCHES = """\
import statistics


def middle_of(values):
    if len(values) == 1:
        return values[0]
    elif not values:
        try:
            return statistics.median(values)
        except statistics.StatisticsError:
            return None
    for value in values:
        if value is None:
            return statistics.nan
    with open("/dev/null"):
        return [statistics.median(values) for _ in "a"][0]
"""


def test_a_way_through_a_function_that_does_not_use_a_name_does_not_import_it(monkeypatch):
    module = lean(BRANCHES, late=["statistics"])
    monkeypatch.setitem(sys.modules, "statistics", None)  # an import of it fails

    assert module.middle_of([5]) == 5
    for values in ([], [1, 2], [None, 1]):
        with pytest.raises(ImportError):
            module.middle_of(values)
    monkeypatch.undo()
    assert (module.middle_of([]), module.middle_of([1, 9, 2])) == (None, 2)


LAZY = """\
made = []


def make(size):
    made.append(size)
    return [size] * size


PAIR = make(2)
TRIPLE = make(3)


def pair_and(value):
    return [*PAIR, value, *(each for each in PAIR)]
"""


def test_a_value_is_made_by_the_first_function_that_uses_it():
    module = lean(LAZY, once=["PAIR"])

    assert module.made == [3]
    assert module.pair_and(1) == module.pair_and(1) == [2, 2, 1, 2, 2]
    assert module.made == [3, 2]


@pytest.mark.parametrize(
    ("used", "refusal"),
    [
        ("FOUR = PAIR * 2", "needs PAIR when it is loaded"),
        ("def own(PAIR): return PAIR", "own has a name of its own PAIR"),
        ("PAIR = make(4)", "does not set PAIR once"),
    ],
)
def test_a_value_that_is_needed_at_once_is_made_at_once(used, refusal):
    with pytest.raises(ValueError, match=refusal):
        lean(LAZY + used, once=["PAIR"])


def test_a_function_takes_the_place_of_another_one():
    module = lean(MODULE, instead=ast.parse("def written(value): return f'<{value}>'").body)

    assert module.written(1) == "<1>"


def frozen(cls):
    """Make a frozen class by the function of images."""
    made = dataclass(frozen=True)(cls)
    del made.__setattr__, made.__delattr__
    _frozen_get_del_attr(made, fields(made), None)
    return made


@pytest.mark.parametrize("decorate", [dataclass(frozen=True), frozen])
def test_fields_of_a_frozen_class_cannot_be_set(decorate):
    @decorate
    class Point:
        x: int = 0
        seen: list = field(default_factory=list)

    class Named(Point):
        pass

    point, named = Point(), Named()
    named.name = "one"
    del named.name

    for each, name in ((point, "x"), (point, "y"), (named, "x"), (named, "seen")):
        with pytest.raises(FrozenInstanceError, match=f"^cannot assign to field '{name}'$"):
            setattr(each, name, 1)
        with pytest.raises(FrozenInstanceError, match=f"^cannot delete field '{name}'$"):
            delattr(each, name)
    assert Point.__setattr__.__qualname__ == f"{Point.__qualname__}.__setattr__"
    for refuse in (decorate, lambda cls: _frozen_get_del_attr(cls, (), None)):
        with pytest.raises(
            TypeError, match=r"^Cannot overwrite attribute __setattr__ in class Own"
        ):
            refuse(type("Own", (), {"__setattr__": object.__setattr__}))


def test_a_frozen_class_with_slots_lets_go_of_the_class_that_it_was_made_of():
    class Point:
        x: int = 0

    plain = frozen(Point)
    slotted = type("Point", (), {"__slots__": ("x",), "__setattr__": plain.__setattr__})
    origin = weakref.ref(Point)
    del Point, plain
    gc.collect()

    assert origin() is None
    for name, error in (("x", FrozenInstanceError), ("y", TypeError)):
        with pytest.raises(error):
            setattr(slotted(), name, 1)


@pytest.mark.parametrize(
    "variables",
    [{}, {"https_proxy": "http://a:1"}, {"HTTP_PROXY": "http://b"}, {"HTTPS_PROXY": "http://a", "no_proxy": "aws.test"}],
)  # fmt: skip
def test_the_sdk_of_aws_uses_the_proxies_of_the_environment(variables, monkeypatch):
    for name in [each for each in os.environ if each.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    for url in ("https://ec2.aws.test", "http://169.254.169.254"):
        assert botocore_utils.get_environ_proxies(url) == utils.get_environ_proxies(url)


def test_definitions_and_bodies_are_left_out():
    module = lean(MODULE, without=["written", "Reader.parsed"], bare=["dict"])

    assert not hasattr(module, "written")
    assert not hasattr(module.Reader, "parsed")
    assert not hasattr(module.Shape, "area")
    assert "__annotations__" not in vars(module.Shape)


def test_a_client_keeps_the_synchronous_forms_of_its_actions():
    methods = [
        f"{action}{form}"
        for action in ("describe_vpcs", "delete_vpc")
        for form in ("", "_async", "_with_options", "_with_options_async")
    ]
    text = "class Client:\n" + "".join(
        f"    def {name}(self): ...\n" for name in (*methods, "_own")
    )

    module = lean(text, actions=["describevpcs"])

    assert [name for name in vars(module.Client) if not name.startswith("__")] == [
        "describe_vpcs",
        "describe_vpcs_with_options",
        "_own",
    ]


def test_annotations_go_except_those_that_choose_an_implementation():
    tree = ast.parse(
        "import functools\n"
        "class Point:\n    x: int = 1\n"
        "def plain(a: int, *b: str, c: float = 1, **d: bytes) -> Missing: ...\n"
        "@functools.singledispatch\ndef shown(value: object): return 'object'\n"
        "@shown.register\ndef _(value: int): return 'int'\n"
    )
    drop_annotations(tree)
    names = {}
    exec(compile(tree, "lean.py", "exec", dont_inherit=True), names)

    assert names["plain"].__annotations__ == {}
    assert names["Point"].__annotations__ == {"x": int}
    assert (names["shown"](1), names["shown"]("")) == ("int", "object")


def test_every_rule_is_read_with_its_actions():
    rules = read_rules()

    assert "describevswitches" in rules["alibabacloud_vpc20160428/client.py"].actions
    assert "runinstances" in rules["alibabacloud_ecs20140526/client.py"].actions


def test_a_file_has_one_rule(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nfile = "a.py"\n' * 2)

    with pytest.raises(ValueError, match=r"a\.py has two rules"):
        read_rules(path)
