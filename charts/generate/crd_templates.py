"""Makes the templates of the chart `karpenter-crd` from `crds/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from charts.generate.settings_table import PROVIDERS
from karpenter_core.provider.host.manager import load_plugins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["crd_templates"]

_SHARED_GROUPS: Final = frozenset({"autoscaling.x-k8s.io"})
"""API groups whose kinds other projects install too."""
_METADATA: Final = """\
metadata:
  {{- include "karpenter-crd.metadata" . | nindent 2 }}
"""


def crd_templates(folder: Path) -> dict[str, str]:
    """Return the text of each template by file name; `folder` is that of the CRDs.

    A CRD of a provider is rendered if the value `provider` names it.
    """
    owners = dict(_owners())
    return {
        path.name: _template(path.read_text(encoding="utf-8"), owners.get(path.name, ""))
        for path in sorted(folder.glob("*.yaml"))
    }


def _owners() -> Iterator[tuple[str, str]]:
    for name in PROVIDERS:
        for model in load_plugins().providers[name].info.node_classes:
            yield f"{model.resource.group}_{model.resource.plural}.yaml", name


def _template(text: str, owner: str) -> str:
    crd = yaml.safe_load(text)
    if set(crd["metadata"]) != {"name"}:
        raise ValueError(f"CRD {crd['metadata']['name']}: only its name is expected in metadata")
    head, separator, rest = text.replace("{{", '{{ "{{" }}').partition("metadata:\n")
    if not separator:
        raise ValueError(f"CRD {crd['metadata']['name']}: no metadata in its text")
    body = head + _METADATA + rest
    if not owner and crd["spec"]["group"] in _SHARED_GROUPS:
        return f'{{{{- if ne (toString .Values.sharedKinds) "false" }}}}\n{body}{{{{- end }}}}\n'
    if not owner:
        return body
    return f'{{{{- if has "{owner}" (include "karpenter-crd.providers" . | fromYamlArray) }}}}\n{body}{{{{- end }}}}\n'
