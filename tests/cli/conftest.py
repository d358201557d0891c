"""Runs the program in this process, as a shell would."""

from __future__ import annotations

import json

import pytest

from tests.cli.inputs import TYPES, write


@pytest.fixture
def types_file(tmp_path):
    path = tmp_path / "types.json"
    path.write_text(json.dumps(TYPES))
    return path


@pytest.fixture
def program(capsys):
    """Run the program with these arguments and return what it printed; `code` None is any."""
    from karpenter_core.cli.main import main

    def run(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert code in {None, ended.value.code}, shown.err
        return shown

    return run


@pytest.fixture
def explain_kind(program, tmp_path):
    """Return a function that explains an object of this kind in a cluster of these objects."""

    def run(kind, *objects, types, name, options=("-o", "json"), code=0):
        types_path = tmp_path / "types.json"
        types_path.write_text(json.dumps(types))
        flat = [each for item in objects for each in (item if isinstance(item, tuple) else (item,))]
        file = write(tmp_path / "cluster.yaml", *flat)
        shown = program(
            "explain", kind, name, "--offline", file, "--instance-types-file", types_path,
            *options, code=code,
        )  # fmt: skip
        return json.loads(shown.out) if code == 0 and options else shown

    return run
