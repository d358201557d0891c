"""User data and images of Amazon Linux 2: a shell script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.user_data import (
    SHELL_SCRIPT,
    UserDataPart,
    mime_archive,
    user_data_parts,
)
from karpenter_provider_aws.families.bootstrap import RAID0, cluster_dns, is_ipv6
from karpenter_provider_aws.families.images import (
    LATEST,
    NEURON,
    NVIDIA,
    STANDARD,
    ImageParameter,
)
from karpenter_provider_aws.families.kubelet_flags import kubelet_flags
from karpenter_provider_aws.families.mime_parts import mime_parts

if TYPE_CHECKING:
    from karpenter_provider_aws.families.bootstrap import BootstrapInput

__all__ = ["image_parameters", "is_mime", "parts_of_user", "user_data"]

_HEADER: Final = (
    "#!/bin/bash -xe\n"
    "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n"
)


def image_parameters(version: str, kubernetes_version: str) -> tuple[ImageParameter, ...]:
    """Return where the images of an alias are; `kubernetes_version` is a minor one (`1.32`)."""
    base = f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2"
    variants = (
        ("", "", (STANDARD,)),
        ("-arm64", "-arm64", (STANDARD,)),
        ("-gpu", "-gpu", (NEURON, NVIDIA)),
    )
    parameters: list[ImageParameter] = []
    for suffix, infix, requirement_sets in variants:
        named = f"amazon-eks{infix}-node-{kubernetes_version}-{version}"
        leaf = "recommended" if version == LATEST else named
        parameters.append(
            ImageParameter(
                path=f"{base}{suffix}/{leaf}/image_id",
                requirement_sets=requirement_sets,
                mutable=version == LATEST,
            )
        )
    return tuple(parameters)


def user_data(bootstrap: BootstrapInput) -> str:
    """Return an archive of the user's parts and, last, the script that joins the cluster.

    Raises:
        BadInputError: the user's text begins like an archive and cannot be read as one.
    """
    script = UserDataPart(content_type=SHELL_SCRIPT, content=_script(bootstrap))
    return mime_archive((*parts_of_user(bootstrap.user_data), script))


def is_mime(text: str) -> bool:
    """Whether this begins as archives do."""
    return text.lstrip().startswith(("MIME-Version:", "Content-Type:"))


def parts_of_user(text: str, *, content_type: str = SHELL_SCRIPT) -> tuple[UserDataPart, ...]:
    """Return the parts of `spec.userData`; one of `content_type` when it is no archive.

    Raises:
        BadInputError: it begins like an archive and cannot be read as one (`mime_parts`).
    """
    if is_mime(text):
        return mime_parts(text)
    return user_data_parts(text, content_type=content_type)


def _script(bootstrap: BootstrapInput) -> str:
    call = [
        "/etc/eks/bootstrap.sh",
        _quoted(bootstrap.cluster_name),
        "--apiserver-endpoint",
        _quoted(bootstrap.cluster_endpoint),
    ]
    if bootstrap.ca_bundle:
        call += ["--b64-cluster-ca", _quoted(bootstrap.ca_bundle)]
    lines = [" ".join(call)]
    dns = cluster_dns(bootstrap.kubelet)
    if bootstrap.is_ipv6 or (dns and is_ipv6(dns[0])):
        lines.append("--ip-family ipv6")
    if dns:
        lines.append(f"--dns-cluster-ip {_quoted(dns[0])}")
    if "maxPods" in bootstrap.kubelet:
        lines.append("--use-max-pods false")
    flags = kubelet_flags(bootstrap)
    if flags:
        lines.append(f"--kubelet-extra-args {_quoted(' '.join(flags))}")
    if bootstrap.instance_store_policy == RAID0:
        lines.append("--local-disks raid0")
    return _HEADER + " \\\n".join(lines)


def _quoted(text: str) -> str:
    """Quote for the shell, always: the script reads the same whatever a value holds."""
    return "'" + text.replace("'", "'\\''") + "'"
