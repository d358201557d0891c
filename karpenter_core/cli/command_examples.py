"""Holds the examples at the end of each command's `--help`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer

__all__ = ["EXAMPLES", "add_examples", "examples_text"]

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "run": (
        "karpenter run --providers kwok --cluster-name test",
        "karpenter run --observe --providers aws --cluster-name my-cluster",
    ),
    "demo": (
        "karpenter demo",
        "karpenter demo --provider aws",
        "karpenter demo --web",
    ),
    "crds": (
        "karpenter crds --provider aws | kubectl apply --server-side -f -",
        "karpenter crds --provider kwok --output-dir crds",
        "karpenter crds -o json",
    ),
    "rbac": (
        "karpenter rbac --provider aws | kubectl apply -f -",
        "karpenter rbac --provider aws --observe -o json",
    ),
    "plan": (
        "karpenter plan",
        "karpenter plan nodepool.yaml",
        "karpenter plan --rebalance",
        "karpenter plan --rebalance -o html > report.html",
        "karpenter plan --offline cluster.json.gz -o json",
    ),
    "snapshot": (
        "karpenter snapshot -o cluster.json.gz",
        "karpenter snapshot --hash-names -o report.json.gz",
        "karpenter plan --offline cluster.json.gz",
    ),
    "simulate": (
        "karpenter simulate --nodepools pools.yaml --workload day.yaml",
        "karpenter simulate --nodepools pools.yaml --workload trace.csv -o json",
        "karpenter simulate --nodepools pools.yaml --compare other.yaml --workload day.yaml -o html > day.html",
        "karpenter simulate --nodepools pools.yaml --workload day.yaml --sweep seed=1,2,3",
    ),
    "top": (
        "karpenter top --sort price",
        "karpenter top --once --filter state:notready",
        "karpenter top --offline cluster.json.gz -o json",
    ),
    "doctor": (
        "karpenter doctor",
        "karpenter doctor --take-over",
        "karpenter doctor --offline cluster.json.gz -o json",
    ),
    "convert": (
        "karpenter convert provisioners/ > nodepools.yaml",
        "kubectl get provisioners -o yaml | karpenter convert -",
        "karpenter convert provisioners/ -o json",
    ),
    "explain pod": (
        "karpenter explain pod shop/web-5d8f-a",
        "karpenter explain pod shop/web-5d8f-a nodepool.yaml",
        "karpenter explain pod shop/web-5d8f-a --offline cluster.json.gz -o json",
    ),
    "explain node": (
        "karpenter explain node ip-10-0-0-7.ec2.internal",
        "karpenter explain node general-x7k2p --offline cluster.json.gz -o json",
    ),
    "explain nodepool": (
        "karpenter explain nodepool general",
        "karpenter explain nodepool general --offline cluster.json.gz -o json",
    ),
    "explain nodeclaim": (
        "karpenter explain nodeclaim general-x7k2p",
        "karpenter explain nodeclaim general-x7k2p --offline cluster.json.gz -o json",
    ),
    "plugin list": ("karpenter plugin list", "karpenter plugin list -o json"),
    "plugin new": (
        "karpenter plugin new tinycloud",
        "karpenter plugin new tinycloud --prefix TinyCloud --output-dir ../tinycloud",
    ),
}
"""Command lines by command; those of plug-ins are given where their commands are."""


def examples_text(*lines: str) -> str:
    """Return command lines as the end of a help text, one under the other."""
    return "\n\n".join(("Examples:", *lines))


def add_examples(app: typer.Typer) -> None:
    """Add the examples to the commands of the program."""
    groups = [("", app)]
    groups += [
        (f"{group.name} ", group.typer_instance)
        for group in app.registered_groups
        if group.typer_instance is not None
    ]
    for prefix, group in groups:
        for command in group.registered_commands:
            lines = EXAMPLES.get(f"{prefix}{command.name}")
            if lines is not None:
                command.epilog = examples_text(*lines)
