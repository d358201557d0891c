"""Names a cloud's endpoints: Azure's own clouds, or one from a file.

Names and endpoints are those of the SDKs for Azure; names are compared without case, as
`ARM_CLOUD` always was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PUBLIC_CLOUD", "CloudEnvironment", "named_environment", "read_environment_file"]

PUBLIC_CLOUD: Final = "AzurePublicCloud"
CHINA_CLOUD: Final = "AzureChinaCloud"
US_GOVERNMENT_CLOUD: Final = "AzureUSGovernmentCloud"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEnvironment:
    """The endpoints of a cloud, without slashes at their ends."""

    name: str
    resource_manager: str
    """The URL of Azure Resource Manager."""
    audience: str
    """The audience of tokens for Azure Resource Manager."""
    authority: str
    """The URL of the service that gives tokens."""
    is_named: bool = True
    """Whether it is one of Azure's own clouds, whose authority is known to credential libraries."""

    @property
    def scope(self) -> str:
        """The scope of tokens for Azure Resource Manager."""
        return f"{self.audience}/.default"

    @property
    def is_public(self) -> bool:
        """Whether prices are published for this cloud."""
        return self.name == PUBLIC_CLOUD

    @property
    def has_billing_extension(self) -> bool:
        """Whether virtual machines get the extension of AKS for billing: in Azure's own clouds."""
        return self.is_named


_CLOUDS: Final = (
    CloudEnvironment(
        name=PUBLIC_CLOUD,
        resource_manager="https://management.azure.com",
        audience="https://management.azure.com",
        authority="https://login.microsoftonline.com",
    ),
    CloudEnvironment(
        name=CHINA_CLOUD,
        resource_manager="https://management.chinacloudapi.cn",
        audience="https://management.chinacloudapi.cn",
        authority="https://login.chinacloudapi.cn",
    ),
    CloudEnvironment(
        name=US_GOVERNMENT_CLOUD,
        resource_manager="https://management.usgovcloudapi.net",
        audience="https://management.core.usgovcloudapi.net",
        authority="https://login.microsoftonline.us",
    ),
)
_OTHER_NAMES: Final = {
    "azurecloud": PUBLIC_CLOUD,
    "azureusgovernment": US_GOVERNMENT_CLOUD,
}


def named_environment(name: str) -> CloudEnvironment:
    """Return one of Azure's own clouds; an empty name is the public one.

    Raises:
        ValueError: there is no such cloud.
    """
    wanted = _OTHER_NAMES.get(name.lower(), name or PUBLIC_CLOUD).lower()
    for cloud in _CLOUDS:
        if cloud.name.lower() == wanted:
            return cloud
    names = ", ".join(cloud.name for cloud in _CLOUDS)
    raise ValueError(f'must be one of {names}, not "{name}"')


def read_environment_file(path: str) -> CloudEnvironment:
    """Return the cloud that a JSON file describes.

    Raises:
        ValueError: path or file cannot be used; names all fields that cannot.
    """
    file = Path(path)
    if not file.is_absolute():
        raise ValueError(f'must be an absolute path, not "{path}"')
    try:
        content: object = json.loads(file.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object")  # noqa: TRY004 - the file's value
    fields = cast("Mapping[str, object]", content)
    complaints: list[str] = []

    def url(field: str) -> str:
        value = fields.get(field)
        parts = urlsplit(value) if isinstance(value, str) else None
        if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
            complaints.append(f"{field} of {path} must be a URL, not {json.dumps(value)}")
        return str(value).rstrip("/")

    cloud = CloudEnvironment(
        name=str(fields.get("name") or ""),
        resource_manager=url("resourceManagerEndpoint"),
        audience=url("tokenAudience"),
        authority=url("activeDirectoryEndpoint"),
        is_named=False,
    )
    if complaints:
        raise ValueError("; ".join(complaints))
    return cloud
