"""`karpenter crds`: renders CustomResourceDefinitions from the models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from karpenter_core.cli.manifest_format import ManifestFormat, json_list
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.base import KubernetesObject

__all__ = ["crds"]


def crds(
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Add the CRDs of this provider; can be repeated."),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(help="Write one file for each CRD into this folder instead of printing them."),
    ] = None,
    output: Annotated[
        ManifestFormat, typer.Option("--output", "-o", help="Format of what is printed.")
    ] = ManifestFormat.YAML,
) -> None:
    """Print the CustomResourceDefinitions that this version needs.

    Needs no cluster, and installs nothing: pass the output to kubectl.
    """
    from karpenter_core.api.crd import crd_file_name, render_crd, render_yaml
    from karpenter_core.cli.written_files import writes_to

    models = _models(provider or ())
    if output is ManifestFormat.JSON:
        if output_dir is not None:
            raise SettingsError("--output-dir writes YAML files: omit --output json")
        print(json_list([render_crd(model) for model in models]))
        return
    if output_dir is None:
        print("".join(map(render_yaml, models)), end="")
        return
    with writes_to(output_dir):
        output_dir.mkdir(parents=True, exist_ok=True)
        for model in models:
            (output_dir / crd_file_name(model)).write_text(render_yaml(model), encoding="utf-8")


def _models(names: Sequence[str]) -> list[type[KubernetesObject]]:
    """Return the core's kinds and those of the named providers.

    All names are known before a kind is printed: `kubectl apply` applies half of an output, too.
    """
    from karpenter_core.api.crd import core_models

    models: list[type[KubernetesObject]] = list(core_models())
    if not names:
        return models
    from karpenter_core.provider.host.manager import load_plugins, missing_plugin

    providers = load_plugins().providers
    for name in dict.fromkeys(names):
        if name not in providers:
            raise missing_plugin(name, installed=providers)
        models += providers[name].info.node_classes
    return models
