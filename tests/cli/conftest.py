"""Runs the program in this process, as a shell would."""

from __future__ import annotations

import json

import pytest

from tests.cli.inputs import TYPES


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
