"""Every command answers what it cannot use with one line: object, field, value, remedy; and exit code 2."""

from __future__ import annotations

import gzip
import json
import socket

import pytest

from karpenter_core.cli.main import main
from tests.cli.inputs import POOL, TYPES, write

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "users": [{"name": "user", "user": {}}],
    "contexts": [{"name": "there", "context": {"cluster": "cluster", "user": "user"}}],
    "current-context": "there",
}
OBJECTS = (
    POOL,
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "main"}]},
    },
)
WORKLOAD = {"deployments": [{"name": "web", "cpu": "1", "replicas": 1}]}
PLAN = ("plan", "--offline")
SIMULATE = ("simulate", "--nodepools", "cluster.yaml", "--workload", "workload.yaml")


@pytest.fixture
def folder(tmp_path, monkeypatch, program):
    """A working folder with files that can and cannot be used, and no cluster of the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "CLUSTER_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROVIDERS", "kwok")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"http://127.0.0.1:{closed.getsockname()[1]}"
    cluster = {"name": "cluster", "cluster": {"server": host}}
    (tmp_path / "dead.yaml").write_text(json.dumps({**KUBECONFIG, "clusters": [cluster]}))
    (tmp_path / "types.json").write_text(json.dumps(TYPES))
    (tmp_path / "workload.yaml").write_text(json.dumps(WORKLOAD))
    odd = {"deployments": [{**WORKLOAD["deployments"][0], "spec": {"nodeSelector": ["a"]}}]}
    (tmp_path / "odd-pod.yaml").write_text(json.dumps(odd))
    odd = {"deployments": [{**WORKLOAD["deployments"][0], "spec": {"nodeselector": {"a": "b"}}}]}
    (tmp_path / "misspelt.yaml").write_text(json.dumps(odd))
    write(tmp_path / "older.yaml", {**POOL, "apiVersion": "karpenter.sh/v1beta1"})
    (tmp_path / "broken.yaml").write_text("kind: [Pod\nmetadata: {}\n")
    (tmp_path / "chart.yaml").write_text("kind: Pod\nmetadata:\n  name: {{ .Values.name }}\n")
    (tmp_path / "loop.yaml").write_text("kind: Pod\n{{- range .Values.all }}\nspec: {}\n")
    (tmp_path / "noise.json.gz").write_bytes(b"\x00\xff\xfe noise")
    write(tmp_path / "cluster.yaml", *OBJECTS)
    types = ("--instance-types-file", "types.json")
    program("snapshot", "--offline", "cluster.yaml", *types, "-o", "saved.json.gz")
    packed = (tmp_path / "saved.json.gz").read_bytes()
    text = gzip.decompress(packed)
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "cut.json").write_bytes(text[: len(text) // 2])
    (tmp_path / "damaged.json.gz").write_bytes(packed[:60] + b"\x00\x00\x00\x00" + packed[64:])
    (tmp_path / "future.json").write_text(_of_another_version(text))
    (tmp_path / "file").write_text("")
    return tmp_path


def _of_another_version(text):
    saved = json.loads(text)
    saved["karpenterSnapshot"]["version"] = 99
    return json.dumps(saved)


CASES = {
    # -- the cluster
    "no cluster at all": (("plan",), "no cluster to connect to", "--kubeconfig"),
    "server that does not answer": (
        ("plan", "--kubeconfig", "dead.yaml"),
        "no answer from http://127.0.0.1:", "Connection refused", "check --kubeconfig and --context",
    ),
    "snapshot of a server that does not answer": (
        ("snapshot", "--kubeconfig", "dead.yaml", "-o", "x.json"), "no answer", "check --kubeconfig",
    ),
    "explanation on a server that does not answer": (
        ("explain", "pod", "a/b", "--kubeconfig", "dead.yaml"), "no answer", "check --kubeconfig",
    ),
    "top on a server that does not answer": (
        ("top", "--once", "--kubeconfig", "dead.yaml"), "no answer", "check --kubeconfig",
    ),
    "missing kubeconfig": (("plan", "--kubeconfig", "none.yaml"), "kubeconfig none.yaml", "no such file"),
    "kubeconfig that is no YAML": (
        ("plan", "--kubeconfig", "broken.yaml"), "kubeconfig broken.yaml", "line 2", "is not YAML",
    ),
    "context that does not exist": (
        ("plan", "--kubeconfig", "dead.yaml", "--context", "here"), 'no context "here"', "there are: there",
    ),
    # -- files
    "missing file": ((*PLAN, "none.yaml"), "none.yaml", "No such file"),
    "no file": (PLAN, "--offline needs at least one FILE"),
    "file that is no YAML": ((*PLAN, "broken.yaml"), "broken.yaml", "line 2", "is not YAML"),
    "template": ((*PLAN, "loop.yaml"), "loop.yaml", "render it first (helm template"),
    "conversion of a template": (("convert", "loop.yaml"), "loop.yaml", "render it first"),
    "conversion of a template whose text is YAML": (
        ("convert", "chart.yaml"), "chart.yaml", "line 3", "render it first (helm template",
    ),
    "file of noise": ((*PLAN, "noise.json.gz"), "noise.json.gz", "is neither text in UTF-8 nor compressed by gzip"),
    "snapshot that ends early": (
        (*PLAN, "cut.json.gz"), "cut.json.gz", "ends early", "save the file again",
    ),
    "uncompressed snapshot that ends early": ((*PLAN, "cut.json"), "cut.json", "is not JSON"),
    "damaged snapshot": ((*PLAN, "damaged.json.gz"), "damaged.json.gz", "is damaged", "save the file again"),
    "snapshot of another version": ((*PLAN, "future.json"), "future.json", "99"),
    "folder without manifests": ((*PLAN, "empty"), "empty", "no YAML or JSON file"),
    "doctor with a snapshot that ends early": (("doctor", "--offline", "cut.json.gz"), "cut.json.gz", "ends early"),
    "top with a snapshot that ends early": (("top", "--once", "--offline", "cut.json.gz"), "ends early"),
    "simulation of a pod that is no pod": (
        (*SIMULATE[:-1], "odd-pod.yaml"), "odd-pod.yaml", "deployments[0]", 'Pod "default/web"',
        "spec.nodeSelector: must be an object, not an array",
    ),
    "simulation of a misspelt field of a pod": (
        (*SIMULATE[:-1], "misspelt.yaml"), "misspelt.yaml", 'field "deployments[0].spec"',
        'a pod has no field "nodeselector"; did you mean "nodeSelector"?',
    ),
    "simulation of an older NodePool": (
        ("simulate", "--nodepools", "older.yaml", "--workload", "workload.yaml"), "older.yaml",
        "must be karpenter.sh/v1, not karpenter.sh/v1beta1", "karpenter convert",
    ),
    "conversion of noise": (("convert", "noise.json.gz"), "noise.json.gz", "is neither text in UTF-8 nor"),
    "snapshot of a snapshot": (
        ("snapshot", "--offline", "saved.json.gz", "-o", "x.json"), "saved.json.gz", "is a snapshot already", "copy",
    ),
    # -- names
    "pod in another namespace": (
        ("explain", "pod", "web", "--offline", "saved.json.gz"), 'no pod "default/web"', "near: shop/web",
    ),
    "unknown pod": (
        ("explain", "pod", "shop/zzzz", "--offline", "saved.json.gz"), 'no pod "shop/zzzz"', "pods there: web",
    ),
    "unknown node": (("explain", "node", "n", "--offline", "saved.json.gz"), 'no node "n"', "there are no nodes"),
    "unknown NodePool": (
        ("explain", "nodepool", "x", "--offline", "saved.json.gz"), 'there is no NodePool "x"', "general",
    ),
    "unknown NodeClaim": (
        ("explain", "nodeclaim", "x", "--offline", "saved.json.gz"), 'no NodeClaim "x"', "there are none",
    ),
    # -- folders and files to write
    "folder of CRDs that is a file": (("crds", "--output-dir", "file"), "file", "cannot be written"),
    "folder of a plug-in in a file": (
        ("plugin", "new", "tiny", "--output-dir", "file/new"), "file", "cannot be written",
    ),
    "snapshot into a folder that does not exist": (
        ("snapshot", "--offline", "cluster.yaml", "--instance-types-file", "types.json", "-o", "none/x.json"),
        "none/x.json", "cannot be written",
    ),
    "results into a folder that does not exist": (
        (*SIMULATE, "--results", "none/results", "--sweep", "seed=1,2", "--duration", "1m"),
        "none/results", "cannot be written",
    ),
    # -- values of options
    "duration": ((*SIMULATE, "--duration", "soon"), "--duration", '"soon"', "90s"),
    "unknown setting": ((*SIMULATE, "--set", "nope=1"), "--set", "nope"),
    "setting without a value": ((*SIMULATE, "--set", "nope"), "--set", "nope"),
    "bad setting": ((*SIMULATE, "--set", "batch-idle-duration=soon"), "--batch-idle-duration", '"soon"'),
    "sweep without values": ((*SIMULATE, "--sweep", "seed"), "--sweep", '"seed"', "KEY=VALUE"),
    "sweep over no field": ((*SIMULATE, "--sweep", "spec.nope=1"), "--sweep", "spec.nope"),
    "shard": ((*SIMULATE, "--sweep", "seed=1,2", "--shard", "9/3"), "--shard", "9/3"),
    "start": ((*SIMULATE, "--start", "now"), "--start", '"now"'),
    "sorting": (("top", "--once", "--sort", "size", *PLAN[1:], "saved.json.gz"), "--sort", '"size"', "columns: name"),
    "filter": (("top", "--once", "--filter", "size:4", *PLAN[1:], "saved.json.gz"), "--filter", '"size"', "fields: pool"),
    "node selector": (("top", "--once", "--node-selector", "a", *PLAN[1:], "saved.json.gz"), "--node-selector", '"a"'),
    "commitments": ((*PLAN, "saved.json.gz", "--commitments", "all"), "commitments", "must be a list", '"all"'),
    "scheduler configuration": ((*PLAN, "saved.json.gz", "--scheduler-config", "[1"), "scheduler", "line 1"),
    "catalogue": ((*PLAN, "cluster.yaml", "--instance-types-file", "cluster.yaml"), "cluster.yaml"),
    "missing catalogue": ((*PLAN, "cluster.yaml", "--instance-types-file", "none.json"), "none.json", "No such file"),
    "offline with a kubeconfig": ((*PLAN, "saved.json.gz", "--kubeconfig", "dead.yaml"), "--offline", "omit --kubeconfig"),
    "provider of roles": (("rbac", "--provider", "nope"), '"nope"', "installed: "),
    "provider of CRDs": (("crds", "--provider", "nope"), '"nope"', "installed: "),
    "provider of the demo": (("demo", "--provider", "nope"), '"nope"', "installed: "),
    "name of a plug-in": (("plugin", "new", "Tiny-9"), '"Tiny-9"', "lower-case letters and digits"),
    "record of the simulated cloud": (("kwok", "dump", "none.json"), "none.json", "cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_unusable_input_gets_one_line_that_says_so(case, folder, program):
    arguments, *parts = CASES[case]
    (folder / "empty").mkdir()

    shown = program(*arguments, code=2)

    last = shown.err.strip().splitlines()[-1]
    assert last.startswith("karpenter: ")
    assert [part for part in parts if part not in last] == []
    assert "Traceback" not in shown.err
    assert " at 0x" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("plan", "-o", "xml"), ("--output", "xml", "json")),
        (("plan", "--packing", "best"), ("--packing", "best", "first-fit")),
        (("top", "--refresh", "0"), ("--refresh", "0")),
        (("explain", "nod", "x"), ("nod",)),
        (("nope",), ("nope",)),
        (("plan", "--nope"), ("--nope",)),
    ],
    ids=" ".join,
)
def test_unknown_commands_and_options_are_named_with_the_way_to_help(arguments, parts, program):
    shown = program(*arguments, code=2)

    assert "--help" in shown.err
    assert [part for part in parts if part not in shown.err] == []


def test_doctor_says_that_the_server_does_not_answer(folder, program):
    """A finding like others: its exit code is that of an error that was found."""
    shown = program("doctor", "--kubeconfig", "dead.yaml", code=None)

    assert "no answer from" in shown.out
    assert "remedy:" in shown.out
    assert " at 0x" not in shown.out


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), PermissionError(13, "Permission denied", "x")]
)
def test_an_error_of_the_system_ends_with_one_line(error, capsys, monkeypatch):
    """Wherever it comes from: a traceback tells a user nothing."""

    def fail(line):
        def run(**_):
            raise error

        return run

    monkeypatch.setattr("karpenter_core.cli.main.build_app", fail)

    with pytest.raises(SystemExit) as ended:
        main(["plan"])

    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert shown.startswith("karpenter: ")
    assert error.strerror in shown
    assert len(shown.splitlines()) == 1
