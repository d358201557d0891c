"""Reads launch templates, and writes EC2NodeClasses with their settings.

The image of a launch template is used with its own user data (`amiFamily: Custom`), so that nodes boot
as before.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.json_values import as_items, as_object, as_objects
from karpenter_provider_aws.labels import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["LaunchTemplate", "find_launch_template", "is_launch_templates", "write_node_class"]

_PARAMETER: Final = "resolve:ssm:"
_VERSIONS: Final = "LaunchTemplateVersions"
_EBS: Final = {
    "DeleteOnTermination": "deleteOnTermination",
    "Encrypted": "encrypted",
    "Iops": "iops",
    "KmsKeyId": "kmsKeyID",
    "SnapshotId": "snapshotID",
    "Throughput": "throughput",
    "VolumeType": "volumeType",
}
_METADATA: Final = {
    "HttpEndpoint": "httpEndpoint",
    "HttpProtocolIpv6": "httpProtocolIPv6",
    "HttpPutResponseHopLimit": "httpPutResponseHopLimit",
    "HttpTokens": "httpTokens",
}
_READ: Final = frozenset(
    {
        "BlockDeviceMappings",
        "IamInstanceProfile",
        "ImageId",
        "InstanceMarketOptions",
        "InstanceType",
        "MetadataOptions",
        "Monitoring",
        "NetworkInterfaces",
        "SecurityGroupIds",
        "TagSpecifications",
        "UserData",
    }
)


@final
@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """One version of a launch template: its title, and its data as EC2 describes them."""

    title: str
    data: Mapping[str, object]

    @property
    def is_spot(self) -> bool:
        """Whether its instances are spot."""
        return as_object(self.data.get("InstanceMarketOptions")).get("MarketType") == "spot"

    @property
    def instance_type(self) -> str:
        """The instance type; empty if it names none."""
        return str(self.data.get("InstanceType") or "")


def is_launch_templates(document: Mapping[str, object]) -> bool:
    """Tell whether a document holds versions of launch templates."""
    return isinstance(document.get(_VERSIONS), list)


def find_launch_template(
    reference: Mapping[str, object], documents: Sequence[Mapping[str, object]]
) -> LaunchTemplate | None:
    """Return the version that a group names: by number, `$Latest`, or the default version."""
    names = {reference.get("LaunchTemplateId"), reference.get("LaunchTemplateName")} - {None}
    candidates = [
        version
        for document in documents
        for version in as_objects(document.get(_VERSIONS))
        if {version.get("LaunchTemplateId"), version.get("LaunchTemplateName")} & names
    ]
    wanted = str(reference.get("Version") or "$Default")
    chosen = [
        each
        for each in candidates
        if str(each.get("VersionNumber")) == wanted
        or (wanted == "$Default" and each.get("DefaultVersion") is True)
    ]
    if wanted == "$Latest":
        chosen = sorted(candidates, key=lambda each: int(str(each.get("VersionNumber") or 0)))
    if not chosen:
        return None
    name = chosen[-1].get("LaunchTemplateName") or chosen[-1].get("LaunchTemplateId")
    title = f'launch template "{name}", version {chosen[-1].get("VersionNumber")}'
    return LaunchTemplate(title, as_object(chosen[-1].get("LaunchTemplateData")))


def write_node_class(
    draft: ManifestDraft,
    *,
    name: str,
    template: LaunchTemplate | None,
    subnets: Sequence[str],
    tags: Mapping[str, str],
) -> ManifestDraft:
    """Write the EC2NodeClass of a group, and return it."""
    node_class = draft.new_manifest(api_version=f"{GROUP}/v1", kind="EC2NodeClass", name=name)
    if template is not None:
        _write_settings(node_class, template)
        for field in sorted(template.data.keys() - _READ):
            draft.warn(f"{template.title}: {field} has no counterpart in EC2NodeClass {name}")
        for loss in _inner_losses(template.data):
            draft.warn(f"{template.title}: {loss}")
    if subnets:
        terms = [{"id": each} for each in subnets]
        node_class.add("spec.subnetSelectorTerms", terms, "subnets of the group")
    all_tags = {**(_template_tags(template.data) if template else {}), **tags}
    if all_tags:
        node_class.add("spec.tags", all_tags, "tags of the group and of its launch template")
    return node_class


def _inner_losses(data: Mapping[str, object]) -> list[str]:
    """Return what is lost of fields that are read."""
    lost: list[str] = []
    if as_object(data.get("MetadataOptions")).get("InstanceMetadataTags") == "enabled":
        lost.append("MetadataOptions.InstanceMetadataTags has no counterpart in EC2NodeClasses")
    for interface in as_objects(data.get("NetworkInterfaces")):
        kind = interface.get("InterfaceType") or "interface"
        if kind != "interface":
            lost.append(
                f"NetworkInterfaces.InterfaceType {kind} is not converted: let pods request "
                "vpc.amazonaws.com/efa, or set spec.networkInterfaces of the EC2NodeClass"
            )
    return list(dict.fromkeys(lost))


def _write_settings(node_class: ManifestDraft, template: LaunchTemplate) -> None:
    data, title = template.data, template.title
    if data.get("ImageId"):
        node_class.add("spec.amiFamily", "Custom", f"{title}: its user data bootstraps the node")
        image = str(data["ImageId"])
        parameter = image.removeprefix(_PARAMETER)
        term = {"id": image} if parameter == image else {"ssmParameter": parameter}
        node_class.add("spec.amiSelectorTerms", [term], f"{title}: ImageId")
    profile = as_object(data.get("IamInstanceProfile"))
    profile_name = str(profile.get("Name") or str(profile.get("Arn") or "").rpartition("/")[2])
    if profile_name:
        node_class.add("spec.instanceProfile", profile_name, f"{title}: IamInstanceProfile")
    groups = [str(each) for each in as_items(data.get("SecurityGroupIds"))]
    for interface in as_objects(data.get("NetworkInterfaces")):
        groups += [str(each) for each in as_items(interface.get("Groups"))]
        if isinstance(interface.get("AssociatePublicIpAddress"), bool):
            value = interface["AssociatePublicIpAddress"]
            node_class.add("spec.associatePublicIPAddress", value, f"{title}: NetworkInterfaces")
    if groups:
        terms = [{"id": each} for each in dict.fromkeys(groups)]
        node_class.add("spec.securityGroupSelectorTerms", terms, f"{title}: security groups")
    mappings = [_block_device(each) for each in as_objects(data.get("BlockDeviceMappings"))]
    if mappings:
        node_class.add("spec.blockDeviceMappings", mappings, f"{title}: BlockDeviceMappings")
    options = _renamed(as_object(data.get("MetadataOptions")), _METADATA)
    options.setdefault("httpTokens", "optional")  # EC2's default, unless the AMI says otherwise
    node_class.add("spec.metadataOptions", options, f"{title}: MetadataOptions, EC2's defaults")
    if isinstance(as_object(data.get("Monitoring")).get("Enabled"), bool):
        value = as_object(data.get("Monitoring"))["Enabled"]
        node_class.add("spec.detailedMonitoring", value, f"{title}: Monitoring")
    if data.get("UserData"):
        node_class.add(
            "spec.userData", _decoded(str(data["UserData"]), title), f"{title}: UserData"
        )


def _block_device(mapping: Mapping[str, object]) -> dict[str, object]:
    ebs = as_object(mapping.get("Ebs"))
    device: dict[str, object] = _renamed(ebs, _EBS)
    if ebs.get("VolumeSize") is not None:
        device["volumeSize"] = f"{ebs['VolumeSize']}Gi"
    return {"deviceName": mapping.get("DeviceName"), "ebs": device}


def _template_tags(data: Mapping[str, object]) -> dict[str, str]:
    return {
        str(tag.get("Key")): str(tag.get("Value") or "")
        for specification in as_objects(data.get("TagSpecifications"))
        if specification.get("ResourceType") == "instance"
        for tag in as_objects(specification.get("Tags"))
        if not str(tag.get("Key")).startswith(("kubernetes.io/cluster/", "aws:"))
    }


def _decoded(text: str, title: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise BadInputError(f"{title}: UserData is no text in base64") from error


def _renamed(fields: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    return {new: fields[old] for old, new in names.items() if fields.get(old) is not None}
