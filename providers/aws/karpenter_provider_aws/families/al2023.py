"""User data and images of Amazon Linux 2023: NodeConfig documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.kit.user_data import SHELL_SCRIPT, UserDataPart, mime_archive
from karpenter_provider_aws.families.al2 import is_mime, parts_of_user
from karpenter_provider_aws.families.bootstrap import RAID0
from karpenter_provider_aws.families.images import (
    LATEST,
    NEURON,
    NVIDIA,
    STANDARD,
    ImageParameter,
)
from karpenter_provider_aws.families.kubelet_flags import node_labels_flag

if TYPE_CHECKING:
    import yaml

    from karpenter_core.api.nodeclaim import TaintSpec
    from karpenter_provider_aws.families.bootstrap import BootstrapInput

__all__ = ["NODE_CONFIG", "image_parameters", "user_data"]

NODE_CONFIG: Final = "application/node.eks.aws"
"""The content type that nodeadm looks for."""

_VARIANTS: Final = (
    ("x86_64", "standard", STANDARD),
    ("x86_64", "nvidia", NVIDIA),
    ("x86_64", "neuron", NEURON),
    ("arm64", "standard", STANDARD),
    ("arm64", "nvidia", NVIDIA),
)
_PLAIN: Final = re.compile(r"(?!(?:[yYnN]|[iI][nN][fF]|[nN][aA][nN])$)[A-Za-z/][\w./@-]*")
"""Text that no YAML reader takes for a number; words such as `no` the writer quotes itself."""


def image_parameters(version: str, kubernetes_version: str) -> tuple[ImageParameter, ...]:
    """Return where the images of an alias are; `kubernetes_version` is a minor one (`1.33`)."""
    base = f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023"
    parameters: list[ImageParameter] = []
    for arch, variant, requirements in _VARIANTS:
        named = f"amazon-eks-node-al2023-{arch}-{variant}-{kubernetes_version}-{version}"
        leaf = "recommended" if version == LATEST else named
        parameters.append(
            ImageParameter(
                path=f"{base}/{arch}/{variant}/{leaf}/image_id",
                requirement_sets=(requirements,),
                mutable=version == LATEST,
            )
        )
    return tuple(parameters)


def user_data(bootstrap: BootstrapInput) -> str:
    """Return an archive of the user's parts and, last, our NodeConfig.

    Raises:
        BadInputError: the user's text begins like an archive and cannot be read as one.
        NodeClassNotReadyError: the CIDR of the cluster's services is not known.
    """
    config = UserDataPart(content_type=NODE_CONFIG, content=_node_config(bootstrap))
    return mime_archive((*_user_parts(bootstrap.user_data), config))


def _user_parts(text: str) -> tuple[UserDataPart, ...]:
    is_config = not is_mime(text) and _is_mapping(text)
    return parts_of_user(text, content_type=NODE_CONFIG if is_config else SHELL_SCRIPT)


def _is_mapping(text: str) -> bool:
    """Whether the (first) YAML document of this is a mapping; a script with a shebang is none.

    To YAML `#!/bin/bash` is a comment, and `echo ready: now` a mapping.
    """
    import yaml

    if text.lstrip().startswith("#!"):
        return False
    try:
        loader = yaml.SafeLoader(text)
        return loader.check_node() and isinstance(loader.get_node(), yaml.MappingNode)
    except yaml.YAMLError:
        return False


def _node_config(bootstrap: BootstrapInput) -> str:
    if not bootstrap.service_cidr:
        raise NodeClassNotReadyError(
            "the CIDR of the cluster's services is not known yet, which AL2023 needs"
        )
    cluster = {
        "name": bootstrap.cluster_name,
        "apiServerEndpoint": bootstrap.cluster_endpoint,
        "cidr": bootstrap.service_cidr,
    }
    if bootstrap.ca_bundle:
        cluster["certificateAuthority"] = bootstrap.ca_bundle
    kubelet: dict[str, object] = {
        "config": {
            **bootstrap.kubelet,
            "registerWithTaints": [_taint(taint) for taint in bootstrap.taints],
        }
    }
    labels = node_labels_flag(bootstrap.labels)
    if labels:
        kubelet["flags"] = [labels]
    spec: dict[str, object] = {"cluster": cluster, "kubelet": kubelet}
    if bootstrap.instance_store_policy == RAID0:
        spec["instance"] = {"localStorage": {"strategy": RAID0}}
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return f"# Karpenter Generated NodeConfig\n{_yaml(document)}"


def _taint(taint: TaintSpec) -> dict[str, str]:
    value = {"value": taint.value} if taint.value else {}
    return {"effect": taint.effect, "key": taint.key, **value}


def _yaml(document: object) -> str:
    """Write YAML that readers of any version understand alike, keys sorted, lines unbroken."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes what might be a number elsewhere: `1e3` is text to PyYAML and 1000 to others."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the library's signature
            """Write a value twice rather than refer to it."""
            return True

    def quoted_text(_: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = None if _PLAIN.fullmatch(text) else '"'
        return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, quoted_text)
    return yaml.dump(
        document, Dumper=Dumper, sort_keys=True, width=float("inf"), default_flow_style=False
    )
