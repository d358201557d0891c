#!/usr/bin/env python3
"""Builds a control plane and kwok from pinned Go modules, once per version.

Each folder beside this file is a small Go module which only pins what is built; its `go.sum`
vouches for every byte. The results are kept under `~/.cache/karpenter-core/controlplane/<name>/`
and are never built twice. Binaries found in the folder named by `KUBEBUILDER_ASSETS` are taken
as they are. Only Python's standard library is needed here, and `go` for what is not yet built.

    python build.py 1.36          build what is missing, print the folders used
    python build.py --regenerate  write go.mod and go.sum anew after changing versions (network)
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache",
) / "karpenter-core" / "controlplane"  # fmt: skip

VERSIONS = {"1.36": "v1.36.3", "1.33": "v1.33.13"}
"""Minor -> the release of Kubernetes that stands for it."""

KWOK_VERSIONS = {"0.8": "v0.8.0", "0.6": "v0.6.0"}
"""Minor -> the release of kwok that stands for it: ours, and that which Karpenter's own end-to-end
scenarios install. The old one looks at all pods of its nodes at every renewal of their Leases; the
new one only when it acquires a Lease, so that it misses what happens while a Lease is gone."""
ETCD = "go.etcd.io/etcd/server/v3"
KWOK = "sigs.k8s.io/kwok"
KUBERNETES_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
KUBERNETES_BINARIES = ("etcd", *KUBERNETES_COMMANDS)
KWOK_STAGES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/fast/pod-complete.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
)
BUILD_TAGS = "notest,grpcnotrace"


def main() -> int:
    """Build, or regenerate the modules."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("minors", nargs="*", help=f"Kubernetes minors: {', '.join(VERSIONS)}")
    parser.add_argument("--kwok", choices=KWOK_VERSIONS, default=next(iter(KWOK_VERSIONS)))
    parser.add_argument("--regenerate", action="store_true", help="write go.mod and go.sum anew")
    arguments = parser.parse_args()
    unknown = set(arguments.minors) - set(VERSIONS)
    if unknown:
        parser.error(f"no module for {sorted(unknown)}; there are {sorted(VERSIONS)}")
    if arguments.regenerate:
        regenerate(arguments.minors or list(VERSIONS))
        return 0
    try:
        for minor in arguments.minors or [next(iter(VERSIONS))]:
            print(build_kubernetes(minor))
        print(build_kwok(arguments.kwok))
    except (BuildError, subprocess.CalledProcessError) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


class BuildError(Exception):
    """The control plane cannot be built here."""


def build_kubernetes(minor: str) -> Path:
    """Return the folder that holds etcd and Kubernetes' binaries of this minor."""
    version = VERSIONS[minor]
    folder = CACHE / f"kubernetes-{version}"
    number, minor_number = minor.split(".")
    flags = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in (
            ("gitVersion", version),
            ("gitMajor", number),
            ("gitMinor", minor_number),
        )
    ]
    packages = {name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_COMMANDS}
    build(HERE / f"kubernetes-{minor}", folder, {"etcd": ETCD, **packages}, link_flags=flags)
    return folder


def build_kwok(minor: str) -> Path:
    """Return the folder that holds kwok and the stages that make nodes and pods run."""
    version = KWOK_VERSIONS[minor]
    folder = CACHE / f"kwok-{version}"
    module = HERE / f"kwok-{minor}"
    flags = [f"-X {KWOK}/pkg/consts.Version={version}"]
    build(module, folder, {"kwok": f"{KWOK}/cmd/kwok"}, link_flags=flags)
    stages = folder / "stages.yaml"
    if not stages.exists():
        root = Path(go(module, "list", "-m", "-f", "{{.Dir}}", KWOK).strip())
        write(stages, "---\n".join((root / stage).read_text() for stage in KWOK_STAGES))
    return folder


def build(module: Path, folder: Path, packages: dict[str, str], *, link_flags: list[str]) -> None:
    """Build each package of a module into the folder, unless it is there already."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in packages.items():
        if (folder / name).exists() or (assets / name).is_file():
            continue
        if shutil.which("go") is None:
            raise BuildError(
                f"{name} is neither in {folder} nor in KUBEBUILDER_ASSETS, and there is no `go` "
                f"to build it with (the Go version is in {module / 'go.mod'})",
            )
        begun = time.monotonic()
        print(f"building {name} for {folder.name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            target = Path(scratch) / name
            go(
                module,
                "build",
                "-trimpath",
                "-buildvcs=false",
                f"-tags={BUILD_TAGS}",
                f"-ldflags=-s -w {' '.join(link_flags)}",
                "-o",
                str(target),
                package,
            )
            target.rename(folder / name)
        print(f"  {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


def go(module: Path, *arguments: str, modifies: bool = False) -> str:
    """Run the Go tool inside a module; what it prints on stderr stays visible."""
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": f"-mod={'mod' if modifies else 'readonly'}",
        "GOWORK": "off",
    }
    return subprocess.run(
        ["go", *arguments],
        cwd=module,
        env=environment,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout


def regenerate(minors: list[str]) -> None:
    """Write the Go modules anew from the versions above."""
    for minor in minors:
        version = VERSIONS[minor]
        module = HERE / f"kubernetes-{minor}"
        with tempfile.TemporaryDirectory() as scratch:
            write(Path(scratch) / "go.mod", "module scratch\n")
            go(Path(scratch), "get", f"k8s.io/kubernetes@{version}", modifies=True)
            form = "{{.GoMod}}"
            path = go(Path(scratch), "list", "-m", "-f", form, "k8s.io/kubernetes").strip()
            requirements = Path(path).read_text()
        staging = sorted(
            set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0(?=\s|$)", requirements, re.MULTILINE))
        )
        replaced = [f"\t{name} => {name} v0{version[2:]}" for name in staging]
        tools = [ETCD, *(f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_COMMANDS)]
        write_module(
            module,
            [f"require k8s.io/kubernetes {version}", "", "replace (", *replaced, ")"],
            tools,
        )
    for minor, version in KWOK_VERSIONS.items():
        module = HERE / f"kwok-{minor}"
        write_module(module, [f"require {KWOK} {version}"], [f"{KWOK}/cmd/kwok"])


def write_module(module: Path, lines: list[str], tools: list[str]) -> None:
    """Write one Go module that needs just these commands, and let Go fill in the sums."""
    module.mkdir(exist_ok=True)
    name = f"controlplane/{module.name}"
    head = [f"module {name}", "", "go 1.26.0", ""]
    body = ["", "tool (", *(f"\t{tool}" for tool in tools), ")", ""]
    write(module / "go.mod", "\n".join([*head, *lines, *body]))
    (module / "go.sum").unlink(missing_ok=True)
    go(module, "list", "-deps", *tools, modifies=True)


def write(path: Path, text: str) -> None:
    """Write a file in one step, so that a half-written one is never taken for whole."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).rename(path)


if __name__ == "__main__":
    sys.exit(main())
