"""The program's imports, output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
import typer

from karpenter_core.cli import main as program

HEAVY = {"numpy", "highspy", "kubernetes", "aiohttp", "textual"}
LIST_MODULES = """
import json, sys
from karpenter_core.cli.main import main
try:
    main([{arguments}])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a run of the program has loaded."""
    code = LIST_MODULES.format(arguments=", ".join(map(repr, arguments)))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "karpenter_core.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )


def test_help_loads_nothing_heavy():
    """No numpy, no Kubernetes client, no cloud's SDK."""
    assert loaded_by("--help").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("line", "commands"),
    [(["plan", "-o", "json"], {"plan"}), (["explain", "pod", "default/web"], {"pod"})],
)
def test_the_options_of_other_commands_are_not_made(monkeypatch, line, commands):
    """Each takes milliseconds, at every start of the program."""
    made = set()
    make = typer.main.get_command_from_info

    def note(command_info, **options):
        made.add(command_info.name)
        return make(command_info, **options)

    monkeypatch.setattr(typer.main, "get_command_from_info", note)
    typer.main.get_command(program.build_app(line))

    assert made == commands


def test_run_imports_only_the_plug_ins_that_are_selected():
    """Each start of a process would else import the providers of all clouds for their commands."""
    loaded = loaded_by("run", "--providers=kwok", "--log-level=loud")

    providers = {
        name.partition(".")[0] for name in loaded if name.startswith("karpenter_provider_")
    }
    assert providers == {"karpenter_provider_kwok"}


def test_the_version_is_shown(capsys):
    with pytest.raises(SystemExit) as end:
        program.main(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"karpenter-core {version('karpenter-core')}\n"


def test_kubectl_finds_the_program_as_a_plug_in():
    """Kubectl runs the executable kubectl-NAME for a command that it does not know."""
    scripts = {each.name: each.value for each in entry_points(group="console_scripts")}

    assert scripts["kubectl-karpenter"] == scripts["karpenter"]


@pytest.mark.parametrize(
    ("line", "completed"),
    [("karpenter con", ["convert"]), ("karpenter plan --pack", ["--packing"])],
)
def test_a_shell_completes_commands_and_options(line, completed):
    done = subprocess.run(
        [Path(sys.executable).with_name("karpenter")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={
            "PATH": "/usr/bin:/bin",
            "_KARPENTER_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        },
    )

    assert done.stdout.split() == completed


def test_commands_of_plug_ins_are_loaded():
    assert "karpenter_provider_kwok.commands" in loaded_by("kwok", "--help")
    assert "karpenter_provider_kwok.commands" in loaded_by("--help")


def test_the_package_loads_nothing():
    """`import karpenter_core` costs nothing."""
    code = "import sys, karpenter_core; print('pydantic' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["False", "False"]


def test_help_of_run_explains_every_setting():
    """The providers' too, without a cluster."""
    done = run("run", "--help")

    assert done.returncode == 0
    for flag in ("--batch-max-duration", "--log-level", "--instance-types-file"):
        assert flag in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("run", "--metric-port=1"), "unknown option --metric-port"),
        (("run", "--log-level=loud"), "--log-level: must be one of"),
        (("run", "--providers=nowhere"), 'plug-in "nowhere" is not installed'),
        (("run", "--kubeconfig=/nonexistent/config"), "/nonexistent/config"),
    ],
)
def test_a_failed_start_is_explained_in_one_line(
    arguments, complaint, tmp_path, monkeypatch, capsys
):
    """Exit code 2, and nothing else on standard error."""
    for name in ("KUBECONFIG", "PROVIDERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CACHE_FOLDER", str(tmp_path))

    with pytest.raises(SystemExit) as end:
        program.main(arguments)

    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_an_invalid_catalogue_stops_the_start_with_file_entry_and_field(tmp_path):
    """Before anything is asked of the cluster."""
    catalogue = tmp_path / "types.json"
    catalogue.write_text(
        json.dumps([{"name": "small", "offerings": [], "resources": {"cpu": "x"}}])
    )
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)

    done = run(
        "run",
        "--providers=kwok",
        f"--kubeconfig={kubeconfig}",
        f"--cache-folder={tmp_path}",
        f"--instance-types-file={catalogue}",
        "--metrics-port=0",
        "--health-probe-port=0",
        "--bind-address=127.0.0.1",
    )

    assert done.returncode == 2
    assert str(catalogue) in done.stderr
    assert "small" in done.stderr


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: test, user: {}}]
"""


def test_clashing_plugins_cost_their_commands_only(monkeypatch, capsys):
    """`karpenter crds` goes on working; `karpenter run` refuses to start."""
    from karpenter_core.errors import PluginError
    from karpenter_core.provider.host import manager

    def clash(**_):
        raise PluginError("two owners of one kind")

    monkeypatch.setattr(manager, "load_plugins", clash)
    app = program.build_app()

    assert "two owners" in capsys.readouterr().err
    assert {"run", "crds"} <= {command.name for command in app.registered_commands}
