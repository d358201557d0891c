"""The mutants tool draws, skips and judges mutants."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutants.__main__ import drawn
from tests.mutants.areas import AREAS, ROOT, sources
from tests.mutants.deciders import Marks, instrumented
from tests.mutants.draw import Mutant, draw, enum_members, mutants_of
from tests.mutants.equivalent import EQUIVALENT, fragment, reason_for
from tests.mutants.frozen import FrozenTree, TreeChangedError
from tests.mutants.judge import with_free_variables
from tests.mutants.order import most_telling_first, nearness
from tests.mutants.probes import MARKS, Blocks, block_of
from tests.mutants.samples import note_killers, read_sample, save_sample

MODULE = '''
import logging
from enum import StrEnum

log = logging.getLogger(__name__)


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "dark"


def shade_of(level: int, *, inverted: bool = False) -> Shade:
    """Say 3 things."""
    log.info("asked", level=1)
    if level < 7 and not inverted:
        return Shade.LIGHT
    return Shade.DARK
'''
MEMBERS = {"Shade": ["LIGHT", "DARK"]}


def changes(source, members=MEMBERS):
    source = dedent(source)
    return {(each.kind, fragment(each, source)) for each in mutants_of("m.py", source, members)}


def draw_from_few(monkeypatch):
    """Draw from one folder, which takes less time than all of the product."""
    monkeypatch.setattr("tests.mutants.__main__.AREAS", {"karpenter_core/lifecycle/nodepool": 1})


class TestDraw:
    def test_every_kind_of_change_is_listed(self):
        result = changes(MODULE)
        assert ("comparison moved", "if level <= 7 and not inverted:") in result
        assert ("not dropped", "if level < 7 and inverted:") in result
        assert ("and/or exchanged", "if (level < 7 or (not inverted)):") in result
        assert ("condition dropped", "if (level < 7):") in result
        assert ("branch skipped", "if False:") in result
        assert ("early exit removed", "pass") in result
        assert ("constant moved", "if level < 8 and not inverted:") in result
        assert ("member exchanged", "return Shade.LIGHT") in result
        assert ("flag turned", "def shade_of(level: int, *, inverted: bool = True) -> Shade:") in (
            result
        )

    def test_texts_for_people_are_ignored(self):
        source = dedent(MODULE)
        lines = {mutant.line for mutant in mutants_of("m.py", source, MEMBERS)}
        told = {number for number, line in enumerate(source.splitlines(), 1) if "asked" in line}
        assert not lines & told

    @pytest.mark.parametrize(
        ("statement", "kind", "changed"),
        [
            ("send(claim)", "statement removed", "pass"),
            ("await send(claim)", "statement removed", "pass"),
            ("self.at = now", "statement removed", "pass"),
            ("send(claim, uid=uid)", "keyword dropped", "send(claim, )"),
            ("x = a - b", "arithmetic exchanged", "x = (a + b)"),
            ("x = min(a, b)", "call exchanged", "x = max(a, b)"),
            ("return (a,)", "result dropped", "return ()"),
        ],
    )
    def test_statement_is_changed(self, statement, kind, changed):
        assert (kind, changed) in changes(f"async def f(self) -> tuple[int]:\n    {statement}\n")

    @pytest.mark.parametrize(
        "statement",
        [
            "x = zip(a, b, strict=True)",
            "del x",
            "assert x > 1",
            "raise BadInputError(f'{x + 1}')",
            "x: tuple[1, 2]",
            "class C(Struct, frozen=True): pass",
            "if kept < due: self._log.error('kept', count=due - kept)",
        ],
    )
    def test_statement_that_no_behaviour_depends_on_is_ignored(self, statement):
        assert changes(f"def f():\n    {statement}\n") == set()

    def test_a_branch_that_does_more_than_log_is_changed(self):
        source = "def f():\n    if kept < due:\n        log.error('kept')\n        give_up()\n"
        assert ("branch skipped", "if False:") in changes(source)

    def test_parts_of_a_sample_are_the_whole_sample(self, monkeypatch):
        draw_from_few(monkeypatch)

        def part(text):
            return drawn(Namespace(seed=5, count=12, only=None, part=text, sample=None))

        parts = [part("1/3"), part("2/3"), part("3/3")]
        assert [len(each) for each in parts] == [4, 4, 4]
        assert sorted(repr(each) for some in parts for each in some) == sorted(
            map(repr, part("1/1"))
        )

    def test_several_places_may_be_asked_for(self, monkeypatch):
        draw_from_few(monkeypatch)
        options = {"seed": 5, "count": 60, "part": "1/1", "sample": None}
        every = [f"{each.path}:{each.line}" for each in drawn(Namespace(**options, only=None))]
        wanted = [every[7], every[30]]
        some = drawn(Namespace(**options, only=wanted))
        assert {f"{each.path}:{each.line}" for each in some} >= set(wanted)
        assert len(some) < len(every) / 2

    def test_a_handler_swallows_its_error(self):
        source = "def f():\n    try:\n        g()\n    except OSError:\n        raise\n"
        assert ("error swallowed", "pass") in changes(source)

    @pytest.mark.parametrize("handled", ["return None", "return", "log.debug('failed')", "pass"])
    def test_a_handler_that_does_nothing_at_the_end_of_a_function_is_ignored(self, handled):
        source = f"def f():\n    try:\n        x.f = g\n    except OSError:\n        {handled}\n"
        assert {kind for kind, _ in changes(source)} == {"statement removed"}

    @pytest.mark.parametrize(
        ("returns", "handled", "counts"),
        [("bool", "False", False), ("bool", "True", True), ("str", "False", True)],
    )
    def test_a_handler_that_answers_no_at_the_end_of_a_function_is_ignored(
        self, returns, handled, counts
    ):
        """Nothing returned counts as False where a bool is asked for."""
        source = (
            f"def f() -> {returns}:\n    try:\n        return g()\n"
            f"    except ValueError:\n        return {handled}\n"
        )
        assert (("error swallowed", "pass") in changes(source)) is counts
        assert "early exit removed" not in {kind for kind, _ in changes(source)}

    def test_a_handler_that_ends_a_function_early_is_changed(self):
        source = "def f():\n    try:\n        g()\n    except OSError:\n        return\n    h()\n"
        assert "error swallowed" in {kind for kind, _ in changes(source)}

    @pytest.mark.developer_tools
    def test_a_seed_decides_the_sample(self):
        areas = {"karpenter_core/lifecycle": 1, "karpenter_core/state": 2}
        first = draw(ROOT, areas, seed=5, count=9)
        assert draw(ROOT, areas, seed=5, count=9) == first
        assert draw(ROOT, areas, seed=6, count=9) != first
        assert [each.path.split("/")[1] for each in first] == ["lifecycle"] * 3 + ["state"] * 6

    def test_a_mutant_compiles_and_differs(self):
        for mutant in draw(ROOT, {"karpenter_core/state": 1}, seed=1, count=20):
            source = (ROOT / mutant.path).read_text("utf-8")
            assert ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))


def mutant_of(path, function=""):
    return Mutant(path=path, kind="", line=1, start=0, end=0, new="", function=function)


class TestOrder:
    MUTANT = mutant_of("karpenter_core/disruption/drift_backoff.py", "DriftBackoff.wait_of")

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            (
                "tests/a/test_b.py",
                "from karpenter_core.disruption.drift_backoff import DriftBackoff",
            ),
            ("tests/a/test_b.py", "from karpenter_core.disruption import budgets, drift_backoff"),
            ("tests/a/test_b.py", "assert backoff.wait_of(claim) == 3"),
            ("tests/disruption/test_drift_backoff.py", ""),
            ("tests/disruption/test_b.py", ""),
        ],
    )
    def test_a_file_about_the_module_is_nearer(self, file, text):
        assert nearness(file, text, self.MUTANT) > nearness("tests/a/test_b.py", "", self.MUTANT)

    def test_a_file_about_other_things_is_not_near(self):
        text = "from karpenter_core.disruption.drift import drifted\nwait_of_all()"
        assert nearness("tests/a/test_b.py", text, self.MUTANT) == 1

    def ordered(self, record, root):
        for test in record:
            file = root / test.partition("::")[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return most_telling_first(record, self.MUTANT, record, root=root)

    def test_short_tests_that_run_little_else_come_first(self, tmp_path):
        path = self.MUTANT.path
        own, others = f"{path}::DriftBackoff.wait_of#0", [f"x.py::f#{n}" for n in range(9)]
        record = {
            "tests/a/test_slow.py::test": (2.0, [own]),
            "tests/a/test_wide.py::test": (0.1, [own, *others]),
            "tests/a/test_narrow.py::test": (0.1, [own]),
        }
        first = [test.split("_")[1] for test in self.ordered(record, tmp_path)]
        assert first == ["narrow.py::test", "wide.py::test", "slow.py::test"]

    def test_tests_of_a_function_that_the_change_calls_come_first(self, tmp_path):
        module = tmp_path / self.MUTANT.path
        module.parent.mkdir(parents=True)
        module.write_text("show_costs(1)", "utf-8")
        change = replace(self.MUTANT, end=len("show_costs(1)"))
        own, called = f"{self.MUTANT.path}::DriftBackoff.wait_of#0", "x.py::show_costs#0"
        others = [f"y.py::f#{n}" for n in range(9)]
        record = {
            "tests/a/test_plain.py::test": (0.1, [own, *others]),
            "tests/a/test_costs.py::test": (0.11, [own, called, *others]),
        }
        for test in record:
            file = tmp_path / test.partition("::")[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("show_costs" if "costs" in test else "", "utf-8")
        ordered = most_telling_first(record, change, record, root=tmp_path)
        assert ordered[0] == "tests/a/test_costs.py::test"
        ordered = most_telling_first(record, self.MUTANT, record, root=tmp_path)
        assert ordered[0] == "tests/a/test_plain.py::test"

    def test_other_tests_come_between_the_cases_of_one(self, tmp_path):
        own, other = f"{self.MUTANT.path}::DriftBackoff.wait_of#0", "x.py::f#0"
        record = {f"tests/a/test_near.py::test_cases[{n}]": (0.1, [own]) for n in range(9)}
        record["tests/a/test_near.py::test_once"] = (0.1, [own, other])
        record["tests/a/test_far.py::test"] = (0.1, [own, other])
        ordered = self.ordered(record, tmp_path)
        assert 0 < ordered.index("tests/a/test_far.py::test") < 5
        assert 0 < ordered.index("tests/a/test_near.py::test_once") < 5


def test_a_method_takes_code_that_lacks_its_super_call():
    class Parent:
        def __init__(self):
            self.done = ["parent"]

    class Child(Parent):
        def __init__(self):
            super().__init__()
            self.done = [*self.done, "child"]

    space = {}
    exec('class Child:\n    def __init__(self):\n        self.done = ["child"]\n', space)
    code = space["Child"].__init__.__code__
    names = Child.__init__.__code__.co_freevars
    assert (names, code.co_freevars) == (("__class__",), ())
    assert Child().done == ["parent", "child"]
    Child.__init__.__code__ = with_free_variables(code, names)
    assert Child().done == ["child"]
    assert with_free_variables(Child.__init__.__code__, ("x",)) is Child.__init__.__code__


class TestDeciders:
    SOURCE = (
        "def is_good(size, name, most):\n"
        "    if size is not None and size < most and name:\n"
        "        return True\n"
        "    return [name or 'none' for _ in range(1) if not (size or name)]\n"
    )

    def idle(self, *calls):
        """Return the parts and limits that decide nothing in these calls."""
        return self.idle_of(self.SOURCE, "is_good", *calls)

    def idle_of(self, source, name, *calls):
        places = []
        code = instrumented(source, "m", places)
        marks = Marks(bytearray(2 * len(places)))
        space = marks.functions()
        exec(code, space)
        plain = {}
        exec(source, plain)
        for call in calls:
            assert space[name](*call) == plain[name](*call)
        return {place.text for place in marks.idle(places)}

    def test_a_part_decides_where_the_condition_had_another_result_without_it(self):
        assert self.idle((1, "x", 2)) == {"size is not None", "size < most", "name"}
        assert "size is not None" not in self.idle((None, "x", 2))
        assert "name" not in self.idle((1, "", 2))
        assert self.idle((3, "x", 2)) == {"size is not None", "size < most", "size"}
        assert "size" not in self.idle((3, "", 2))

    def test_a_limit_decides_where_both_sides_are_equal(self):
        texts = self.idle((1, "x", 2), (3, "x", 2))
        assert "size < most" in texts
        assert "size < most" not in self.idle((2, "x", 2), (2, "x", 3))

    def test_a_number_decides_where_the_next_one_had_another_result(self):
        source = "def is_some(count):\n    return 0 < count <= 3\n"
        text = "0 < count <= 3"
        every = {f"{text}: 0 +1", f"{text}: 3 +1", f"{text}: 3 -1"}
        assert self.idle_of(source, "is_some", (2,), (-1,), (5,)) == every
        assert self.idle_of(source, "is_some", (1,)) == every - {f"{text}: 0 +1"}
        assert self.idle_of(source, "is_some", (3,)) == every - {f"{text}: 3 -1"}
        assert self.idle_of(source, "is_some", (4,)) == every - {f"{text}: 3 +1"}
        source = "def is_any(count):\n    return count > 0\n"
        assert self.idle_of(source, "is_any", (2,)) == {"count > 0", "count > 0: 0 +1"}
        assert self.idle_of(source, "is_any", (0,)) == {"count > 0: 0 +1"}
        assert self.idle_of(source, "is_any", (1,)) == {"count > 0"}
        source = "def is_five(count):\n    return count == 5\n"
        assert self.idle_of(source, "is_five", (7,)) == {"count == 5: 5 +1", "count == 5: 5 -1"}
        assert self.idle_of(source, "is_five", (5,)) == set()

    def test_a_default_decides_where_the_key_is_missing(self):
        source = "def amount(found, key):\n    return found.get(key, 0)\n"
        assert self.idle_of(source, "amount", ({"a": 1}, "a")) == {"found.get(key, 0)"}
        assert self.idle_of(source, "amount", ({"a": 1}, "b")) == set()

    def test_a_choice_decides_where_its_opposite_had_another_result(self):
        source = "def least(values):\n    return min((each for each in values), default=0)\n"
        (text,) = self.idle_of(source, "least", ([2],), ([],))
        assert text.startswith("min(")
        assert self.idle_of(source, "least", ([2, 1],)) == set()
        source = "def is_full(values):\n    return all(each > 0 for each in values)\n"
        assert "all((each > 0 for each in values))" in self.idle_of(source, "is_full", ([1, 2],))
        texts = self.idle_of(source, "is_full", ([1, 0],))
        assert "all((each > 0 for each in values))" not in texts


@pytest.mark.developer_tools
class TestEquivalent:
    def test_every_entry_is_a_mutant_of_its_module(self):
        """An entry whose lines have changed explains nothing any more."""
        members = enum_members(ROOT, sources(ROOT, tuple(AREAS)))
        for path in {path for path, _, _ in EQUIVALENT}:
            source = (ROOT / path).read_text("utf-8")
            mutants = mutants_of(path, source, members)
            reasons = {reason for mutant in mutants if (reason := reason_for(mutant, source))}
            assert reasons == {EQUIVALENT[key] for key in EQUIVALENT if key[0] == path}


class TestProbes:
    def test_blocks_that_ran_are_noted(self):
        blocks = Blocks()
        space = {MARKS: blocks.hits}
        source = MODULE.replace('log.info("asked", level=1)', "pass")
        exec(compile(blocks.instrument(source, "m"), "m", "exec"), space)
        blocks.taken()
        space["shade_of"](8)
        assert [blocks.names[each] for each in blocks.taken()] == ["m::shade_of#0"]
        space["shade_of"](1)
        assert [blocks.names[each] for each in blocks.taken()] == ["m::shade_of#0", "m::shade_of#1"]
        assert blocks.taken() == []

    def test_a_line_belongs_to_the_innermost_block(self):
        lines = MODULE.splitlines()
        assert block_of(MODULE, lines.index("        return Shade.LIGHT") + 1) == "shade_of#1"
        assert block_of(MODULE, lines.index("    return Shade.DARK") + 1) == "shade_of#0"
        assert block_of(MODULE, lines.index("class Shade(StrEnum):") + 1) == ""


PRODUCT = """
LIMIT = 3


def is_full(count: int) -> bool:
    return count >= LIMIT


def is_empty(count: int) -> bool:
    return count <= 0
"""
TESTS = """
from karpenter_core.state.tiny import is_empty, is_full


def test_three_are_full():
    assert is_full(3)
    assert not is_full(2)


def test_no_mutant_is_empty():
    assert is_empty(0)
"""


@pytest.fixture
def tiny(tmp_path):
    """A tree with a tool, a module and its tests: of `is_empty` half is tested."""
    names = [path.stem for path in (ROOT / "tests/mutants").glob("*.py")]
    for name in names:
        if name.startswith("test_"):
            continue
        place = tmp_path / "tests/mutants" / f"{name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text((ROOT / f"tests/mutants/{name}.py").read_text("utf-8"), "utf-8")
    product = tmp_path / "karpenter_core/state"
    product.mkdir(parents=True)
    (tmp_path / "karpenter_core/__init__.py").touch()
    (product / "__init__.py").touch()
    (product / "tiny.py").write_text(PRODUCT, "utf-8")
    (tmp_path / "tests/test_tiny.py").write_text(TESTS, "utf-8")
    (tmp_path / "providers").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["."]\n'
        'addopts = ["-m", "not cluster_runs"]\nmarkers = ["cluster_runs", "properties"]\n'
    )
    return tmp_path


def environment(folder):
    """Return variables for the tool in a tree of its own."""
    return {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PYTEST_ADDOPTS": "-p no:karpenter",
    }


def tool(folder, *arguments):
    """Run the tool in a tree of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.mutants", *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.developer_tools
class TestJudge:
    @pytest.mark.parametrize(
        ("options", "files"),
        [((), 1), (("--with-cluster-runs",), 2)],
        ids=["usual", "with cluster runs"],
    )
    def test_cluster_runs_are_recorded_only_by_option(self, tiny, options, files):
        runs = tiny / "tests/test_runs.py"
        runs.write_text("import pytest\n\n\n@pytest.mark.cluster_runs\ndef test_run():\n    pass\n")
        recorded = tool(tiny, "--record", *options)
        asked_for = f"; {files} files to record"
        assert asked_for in recorded.stdout, recorded.stdout + recorded.stderr

    def test_survivors_are_those_that_no_test_sees(self, tiny):
        recorded = tool(tiny, "--record")
        assert "1/1 tests/test_tiny.py" in recorded.stdout, recorded.stdout + recorded.stderr
        done = tool(tiny, "--seed", "1", "--count", "300")
        verdicts = [line for line in done.stdout.splitlines() if "tiny.py:" in line]
        killed = {line.split()[1] for line in verdicts if "killed by tests/test_tiny.py" in line}
        survived = {line.split()[1] for line in verdicts if "SURVIVED" in line}
        module = "karpenter_core/state/tiny.py"
        assert killed, done.stdout + done.stderr
        assert f"{module}:2" in killed, done.stdout  # in another process
        assert f"{module}:6" in killed
        assert f"{module}:10" in killed | survived
        assert (tiny / module).read_text("utf-8") == PRODUCT

    @pytest.mark.parametrize(
        "body",
        ["pytest.skip('not here')", "pytest.xfail('known')", "pytest.importorskip('nowhere')"],
    )
    def test_a_test_that_a_mutant_skips_has_not_killed_it(self, tiny, body):
        tests = "import pytest\nfrom karpenter_core.state.tiny import is_empty\n\n\n"
        tests += f"def test_nothing():\n    if not is_empty(0):\n        {body}\n"
        (tiny / "tests/test_tiny.py").write_text(tests, "utf-8")
        tool(tiny, "--record")
        done = tool(tiny, "--seed=1", "--count=300", "--only=tiny.py:10")
        verdicts = [line for line in done.stdout.splitlines() if "tiny.py:10 (" in line]
        assert verdicts, done.stdout + done.stderr
        assert not [line for line in verdicts if "killed by" in line]


def descendants(process):
    """Return the children of a process and theirs, as the kernel tells them."""
    found = []
    for thread in (Path("/proc") / str(process) / "task").glob("*/children"):
        for child in map(int, thread.read_text().split()):
            found += [child, *descendants(child)]
    return found


class TestSamples:
    """A sample in a file is the same one after the product has changed."""

    PATH = "karpenter_core/state/m.py"
    TEXT = "def f(a):\n    if a < 3:\n        return 1\n    g(a)\n    g(a)\n    return 2\n"

    @pytest.fixture
    def root(self, tmp_path):
        (tmp_path / self.PATH).parent.mkdir(parents=True)
        (tmp_path / self.PATH).write_text(self.TEXT)
        return tmp_path

    def test_mutants_are_found_again_where_their_lines_are_now(self, root):
        before = list(mutants_of(self.PATH, self.TEXT, {}))
        save_sample(root / "sample", before, root=root)
        assert read_sample(root / "sample", root=root).mutants == before

        moved = f"X = 1\n\n\n{self.TEXT}"
        (root / self.PATH).write_text(moved)
        sample = read_sample(root / "sample", root=root)
        after, gone = sample.mutants, sample.gone
        assert [each.line for each in after] == [each.line + 3 for each in before]
        assert [each.diff(moved) for each in after] == [each.diff(self.TEXT) for each in before]
        assert len({each.start for each in after if each.kind == "statement removed"}) == 2
        assert gone == []

    def test_those_whose_lines_are_gone_are_told(self, root):
        before = list(mutants_of(self.PATH, self.TEXT, {}))
        save_sample(root / "sample", before, root=root)
        (root / self.PATH).write_text(self.TEXT.replace("a < 3", "a < 4"))
        sample = read_sample(root / "sample", root=root)
        after, gone = sample.mutants, sample.gone
        of_the_line = [each for each in before if each.line == 2]
        assert len(gone) == len(of_the_line)
        assert len(after) == len(before) - len(gone)

        (root / self.PATH).unlink()
        assert len(read_sample(root / "sample", root=root).gone) == len(before)

    def test_killers_are_kept_beside_their_mutants(self, root):
        first, second, *_ = before = list(mutants_of(self.PATH, self.TEXT, {}))
        file = root / "sample"
        save_sample(file, before, root=root)
        note_killers(file, {first: "t.py::a"}, root=root)
        note_killers(file, {second: "t.py::b"}, root=root)
        (root / self.PATH).write_text(f"X = 1\n{self.TEXT}")
        sample = read_sample(file, root=root)
        told = [sample.killers[each] for each in sample.mutants]
        assert told == ["t.py::a", "t.py::b", *[""] * (len(before) - 2)]

    @pytest.mark.developer_tools
    def test_a_test_that_killed_before_judges_first(self, tiny):
        tool(tiny, "--record")
        options = ("--seed=1", "--count=300", "--only=tiny.py", "--first-pass-only")
        before = tool(tiny, *options, "--sample=set.txt").stdout
        killed = {line.split()[1] for line in before.splitlines() if " killed by " in line}
        assert killed
        for record in (tiny / ".cache/karpenter-core/mutants").glob("*.gz"):
            record.unlink()
        again = tool(tiny, *options, "--sample=set.txt", "--incomplete").stdout
        assert {line.split()[1] for line in again.splitlines() if " killed by " in line} == killed

    @pytest.mark.developer_tools
    def test_a_file_keeps_what_a_seed_drew(self, tmp_path, monkeypatch):
        draw_from_few(monkeypatch)
        options = {"count": 20, "part": "1/1", "only": None, "sample": tmp_path / "sample"}
        first = drawn(Namespace(seed=1, **options))
        assert len(first) == 20
        assert drawn(Namespace(seed=2, **options)) == first


@pytest.mark.developer_tools
@pytest.mark.skipif(sys.platform != "linux", reason="the tool asks Linux for it")
class TestLifetime:
    """Processes that judge do not outlive the tool, whatever they compute."""

    @pytest.mark.parametrize("place", ["tiny.py:2", "tiny.py:10"], ids=["process", "fork"])
    def test_judges_end_with_a_tool_that_is_killed(self, tiny, place):
        late = "\n\ndef test_late():\n    assert is_full(3)\n    assert is_empty(0)\n"
        endless = f"{late}    while (Path(__file__).parent / 'endless').exists():\n        pass\n"
        tests = f"from pathlib import Path\n{BLIND_TEST.strip()}\n{endless}"
        tests = tests.replace("import is_empty", "import is_empty, is_full")
        (tiny / "tests/test_tiny.py").write_text(tests, "utf-8")
        tool(tiny, "--record")
        (tiny / "tests/endless").touch()
        command = [sys.executable, "-m", "tests.mutants", "--seed=1", "--count=300"]
        with subprocess.Popen(
            [*command, f"--only={place}", "--first-pass-only"],
            cwd=tiny,
            env=environment(tiny),
            stdout=subprocess.DEVNULL,
        ) as running:
            until = time.monotonic() + 120
            try:
                while not (judges := descendants(running.pid)) and time.monotonic() < until:
                    time.sleep(0.05)
            finally:
                running.kill()
        assert judges
        while time.monotonic() < until and any(map(is_running, judges)):
            time.sleep(0.05)
        left = [each for each in judges if is_running(each)]
        for each in left:
            os.kill(each, signal.SIGKILL)
        assert not left


def is_running(process):
    """Return whether a process is there and has not ended."""
    try:
        state = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


CLUSTER_RUN = """
import os

import pytest
from karpenter_core.state.tiny import is_empty


@pytest.mark.{mark}
def test_nothing_is_empty():
    usual = not os.environ.get("KARPENTER_PROPERTY_EXAMPLES")
    assert (is_empty(0) and not is_empty(1)) or not usual
"""


BLIND_TEST = """
from karpenter_core.state.tiny import is_empty


def test_nothing():
    is_empty(0)
"""


@pytest.mark.developer_tools
class TestSurvivors:
    """Tests that the first pass left out may still kill."""

    ONLY = ("--seed=1", "--count=300", "--only=tiny.py:10")

    def killers(self, folder, *options):
        done = tool(folder, *self.ONLY, *options)
        lines = [line for line in done.stdout.splitlines() if "tiny.py:10" in line]
        assert lines, done.stdout + done.stderr
        return [line.rpartition(" by ")[2] for line in lines if " killed by " in line], lines

    def test_tests_that_a_first_budget_left_out_judge_survivors(self, tiny):
        long = "\n\ndef test_long():\n    assert sum(range(5_000_000))\n"
        long += "    assert is_empty(0)\n    assert not is_empty(1)\n"
        (tiny / "tests/test_tiny.py").write_text(BLIND_TEST + long, "utf-8")
        tool(tiny, "--record")
        assert self.killers(tiny, "--budget=0", "--first-pass-only")[0] == []
        assert self.killers(tiny, "--budget=0")[0] == ["tests/test_tiny.py::test_long"]

    def test_tests_that_call_the_product_while_they_are_collected_judge_survivors(self, tiny):
        early = "\n\nEMPTY = [is_empty(count) for count in (0, 1)]\n\n\n"
        early += "def test_early():\n    is_empty(0)\n    assert EMPTY == [True, False]\n"
        (tiny / "tests/test_tiny.py").write_text(BLIND_TEST + early, "utf-8")
        tool(tiny, "--record")
        assert self.killers(tiny, "--first-pass-only")[0] == []
        assert self.killers(tiny)[0] == ["tests/test_tiny.py::test_early"]

    @pytest.mark.parametrize("mark", ["cluster_runs", "properties"])
    def test_tests_of_ci_judge_survivors_on_their_usual_examples(self, tiny, mark):
        (tiny / "tests/test_tiny.py").write_text(BLIND_TEST, "utf-8")
        (tiny / "tests/test_tiny_runs.py").write_text(CLUSTER_RUN.format(mark=mark), "utf-8")
        tool(tiny, "--record")
        test = "tests/test_tiny_runs.py::test_nothing_is_empty"
        assert test not in self.killers(tiny, "--first-pass-only")[0]
        assert test in self.killers(tiny)[0]

    def test_a_test_of_ci_that_fails_anyway_kills_nothing(self, tiny):
        failing = CLUSTER_RUN.format(mark="cluster_runs") + "    assert not usual\n"
        (tiny / "tests/test_tiny.py").write_text(BLIND_TEST, "utf-8")
        (tiny / "tests/test_tiny_runs.py").write_text(failing, "utf-8")
        tool(tiny, "--record")
        killers, lines = self.killers(tiny)
        assert not [test for test in killers if "test_tiny_runs" in test], lines


class TestFrozenTree:
    @pytest.fixture
    def root(self, tmp_path):
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests/test_a.py").write_text("a")
        return tmp_path

    def test_an_unchanged_tree_passes(self, root):
        tree = FrozenTree(root)
        (root / "tests/notes.txt").write_text("not read by a test")
        tree.check()

    @pytest.mark.parametrize("name", ["test_a.py", "test_b.py"])
    def test_a_changed_or_new_file_is_named(self, root, name):
        tree = FrozenTree(root)
        (root / "tests" / name).write_text("b")
        os.utime(root / "tests" / name, ns=(5, 5))
        with pytest.raises(TreeChangedError, match=f"tests/{name}"):
            tree.check()


@pytest.mark.developer_tools
class TestRecords:
    """Mutants that only tests without a record kill would survive: judging tells of such tests."""

    def test_files_without_a_record_are_named_and_nothing_is_judged(self, tiny):
        tool(tiny, "--record")
        (tiny / "tests/test_new.py").write_text("def test_new():\n    pass\n")
        done = tool(tiny, "--seed", "1", "--count", "3")
        assert "no record: tests/test_new.py" in done.stdout, done.stdout + done.stderr
        assert "tests/test_tiny.py" not in done.stdout
        assert "no mutant was judged" in done.stdout
        assert done.returncode == 1

    def test_only_tests_that_run_a_changed_function_are_recorded_again(self, tiny):
        other = "from karpenter_core.state.tiny import is_empty\n\n\n"
        other += "def test_other():\n    assert not is_empty(1)\n"
        (tiny / "tests/test_other.py").write_text(other)
        tool(tiny, "--record")
        module = tiny / "karpenter_core/state/tiny.py"
        module.write_text(PRODUCT.replace("count <= 0", "count < 1"), "utf-8")
        judged = tool(tiny, "--seed", "1", "--count", "3")
        assert "no record: tests/test_other.py" in judged.stdout, judged.stdout + judged.stderr
        recorded = tool(tiny, "--record")
        assert "2 files to record, 2 tests" in recorded.stdout
        assert "killed by" in tool(tiny, "--seed", "1", "--count", "3").stdout

    def test_stale_records_may_choose_tests(self, tiny):
        tool(tiny, "--record")
        module = tiny / "karpenter_core/state/tiny.py"
        module.write_text(PRODUCT.replace("count >= LIMIT", "LIMIT <= count"), "utf-8")
        options = ("--seed=1", "--count=300", "--first-pass-only")
        assert "1 files have no record" in tool(tiny, *options).stdout
        done = tool(tiny, *options, "--stale-records")
        assert "tiny.py:6 (result dropped): killed by" in done.stdout, done.stdout

    def test_a_moved_function_keeps_its_records(self, tiny):
        tool(tiny, "--record")
        module = tiny / "karpenter_core/state/tiny.py"
        module.write_text(f"# A comment.\n\n{PRODUCT}", "utf-8")
        assert "0 files to record" in tool(tiny, "--record").stdout

    def test_judging_without_records_needs_an_option_and_counts_them(self, tiny):
        tool(tiny, "--record")
        (tiny / "tests/test_new.py").write_text("def test_new():\n    pass\n")
        done = tool(tiny, "--seed", "1", "--count", "3", "--incomplete")
        assert "killed by tests/test_tiny.py" in done.stdout, done.stdout + done.stderr
        assert "1 tests of 1 files had no record and judged nothing" in done.stdout

    def test_tests_that_failed_when_they_were_recorded_are_counted(self, tiny):
        (tiny / "tests/test_new.py").write_text(
            "def test_good():\n    pass\n\n\ndef test_bad():\n    assert 1 > 2\n"
        )
        tool(tiny, "--record")
        done = tool(tiny, "--seed", "1", "--count", "3")
        assert "1 tests without a record: tests/test_new.py" in done.stdout
        assert "1 tests of 1 files had no record and judged nothing" in done.stdout

    def test_a_time_limit_keeps_earlier_records(self, tiny):
        records = tiny / "tests/mutants/records.py"
        text = records.read_text("utf-8")
        for limit, shorter in (("300.0", "2.0"), ("CPU_SECONDS: Final = 5.0", "CPU_SECONDS = 0.0")):
            assert limit in text
            text = text.replace(limit, shorter)
        records.write_text(text, "utf-8")
        endless = "\n\ndef test_endless():\n    while True:\n        pass\n"
        (tiny / "tests/test_tiny.py").write_text(TESTS + endless, "utf-8")
        recorded = tool(tiny, "--record")
        assert "signal SIGXCPU" in recorded.stdout, recorded.stdout + recorded.stderr
        # The second pass would run the endless test until its own limit, once for each survivor.
        done = tool(tiny, "--seed", "1", "--count", "3", "--first-pass-only")
        assert "1 tests without a record: tests/test_tiny.py" in done.stdout
        assert "killed by tests/test_tiny.py" in done.stdout

    def test_two_processes_do_not_record_at_once(self, tiny):
        cache = tiny / ".cache/karpenter-core/mutants"
        cache.mkdir(parents=True)
        with (cache / "recording.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            refused = tool(tiny, "--record")
        assert "another process records" in refused.stdout, refused.stdout + refused.stderr
        assert refused.returncode == pytest.ExitCode.TESTS_FAILED
        assert "1/1 tests/test_tiny.py" in tool(tiny, "--record").stdout


@pytest.mark.developer_tools
class TestExitCode:
    """The gate passes only when mutants were judged, and enough of them killed."""

    def run(self, *arguments):
        command = [sys.executable, "-m", "tests.mutants", "--seed=1", "--count=1", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode

    def test_a_place_without_mutants_fails(self, tiny):
        done = tool(tiny, "--only=nowhere.py", "--count=1", "--incomplete", "tests/test_tiny.py")
        assert "no mutant was judged" in done.stdout
        assert done.returncode == 1

    @pytest.mark.parametrize("record", [(), ("--record",)])
    def test_tests_that_are_not_there_fail_as_in_pytest(self, record):
        assert self.run(*record, "tests/nowhere") == pytest.ExitCode.USAGE_ERROR
