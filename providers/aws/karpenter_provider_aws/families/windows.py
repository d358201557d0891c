"""User data and images of Windows: a PowerShell script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import OS, WINDOWS_BUILD
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import BadInputError
from karpenter_provider_aws.families.bootstrap import cluster_dns
from karpenter_provider_aws.families.images import ImageParameter
from karpenter_provider_aws.families.kubelet_flags import kubelet_flags

if TYPE_CHECKING:
    from karpenter_provider_aws.families.bootstrap import BootstrapInput
    from karpenter_provider_aws.families.traits import FamilyTraits

__all__ = ["image_parameters", "user_data"]

_TAG: Final = re.compile(r"</?powershell>", re.IGNORECASE)
_SCRIPT_FILE: Final = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"


def image_parameters(traits: FamilyTraits, kubernetes_version: str) -> tuple[ImageParameter, ...]:
    """Return where the newest image of one Windows Server is; others cannot be asked for."""
    name = f"Windows_Server-{traits.windows_year}-English-Core-EKS_Optimized-{kubernetes_version}"
    requirements = (
        RequirementSpec(key=OS, operator="In", values=("windows",)),
        RequirementSpec(key=WINDOWS_BUILD, operator="In", values=(traits.windows_build,)),
    )
    return (
        ImageParameter(
            path=f"/aws/service/ami-windows-latest/{name}/image_id",
            requirement_sets=(requirements,),
            mutable=True,
        ),
    )


def user_data(bootstrap: BootstrapInput) -> str:
    """Return the user's script and, after it, the call that joins the cluster.

    Raises:
        BadInputError: the user's script would end the block that both are in.
    """
    if found := _TAG.search(bootstrap.user_data):
        raise BadInputError(
            f"spec.userData has the tag {found[0]}: give the script without tags, since the call "
            "that joins the cluster follows it in the same block"
        )
    call = [
        "& $EKSBootstrapScriptFile",
        f"-EKSClusterName {_quoted(bootstrap.cluster_name)}",
        f"-APIServerEndpoint {_quoted(bootstrap.cluster_endpoint)}",
    ]
    if bootstrap.ca_bundle:
        call.append(f"-Base64ClusterCA {_quoted(bootstrap.ca_bundle)}")
    flags = kubelet_flags(bootstrap)
    if flags:
        call.append(f"-KubeletExtraArgs {_quoted(' '.join(flags))}")
    dns = cluster_dns(bootstrap.kubelet)
    if dns:
        call.append(f"-DNSClusterIP {_quoted(dns[0])}")
    lines = [
        "<powershell>",
        *([bootstrap.user_data] if bootstrap.user_data else []),
        f'[string]$EKSBootstrapScriptFile = "{_SCRIPT_FILE}"',
        " ".join(call),
        "</powershell>",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Quote for PowerShell, always: within single quotes nothing is expanded."""
    return "'" + text.replace("'", "''") + "'"
