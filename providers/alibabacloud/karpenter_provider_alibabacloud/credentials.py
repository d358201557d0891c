"""Finds credentials: in the environment, else by the library's chain.

The library reads its variables when it is imported, which is too early for a process whose
environment is set later. So keys and roles in variables are looked up here; all else is the
library's default chain: a profile of the command line, a credentials file, the instance's RAM role,
a credentials URI.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alibabacloud_credentials.client import Client

__all__ = ["Credential", "find_credential"]

_KEY_ID: Final = "ALIBABA_CLOUD_ACCESS_KEY_ID"
_KEY_SECRET: Final = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"  # noqa: S105 - the name of a variable
_TOKEN: Final = "ALIBABA_CLOUD_SECURITY_TOKEN"  # noqa: S105 - the name of a variable
_ROLE: Final = "ALIBABA_CLOUD_ROLE_ARN"
_ROLE_PROVIDER: Final = "ALIBABA_CLOUD_OIDC_PROVIDER_ARN"
_ROLE_TOKEN_FILE: Final = "ALIBABA_CLOUD_OIDC_TOKEN_FILE"  # noqa: S105 - the name of a variable
_SHOWN_CHARACTERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Credential:
    """A source of keys."""

    client: Client
    """The credentials library's; it renews keys that end."""
    provider: str
    """Source of the keys: `access_key`, `sts`, `oidc_role_arn` (RRSA), else `default`."""
    key_id_end: str = ""
    """The last four characters of the key's id, where it is known: all of it that is ever shown."""

    def __str__(self) -> str:
        return f"{self.provider} (…{self.key_id_end})" if self.key_id_end else self.provider


def find_credential(environment: Mapping[str, str] | None = None) -> Credential:
    """Return the first source of keys that is there, in the library's order. Nothing is asked.

    A key in variables goes before a role for service accounts (RRSA), and that before the rest.
    """
    from alibabacloud_credentials.client import Client

    given = os.environ if environment is None else environment
    key_id, secret, token = (given.get(name, "") for name in (_KEY_ID, _KEY_SECRET, _TOKEN))
    if key_id and secret:
        kind = "sts" if token else "access_key"
        from alibabacloud_credentials.models import Config

        config = Config(type=kind, access_key_id=key_id, access_key_secret=secret)
        if token:
            config.security_token = token
        return Credential(
            client=Client(config), provider=kind, key_id_end=key_id[-_SHOWN_CHARACTERS:]
        )
    role, provider, token_file = (
        given.get(name, "") for name in (_ROLE, _ROLE_PROVIDER, _ROLE_TOKEN_FILE)
    )
    if role and provider and token_file:
        from alibabacloud_credentials.provider.oidc import OIDCRoleArnCredentialsProvider

        source = OIDCRoleArnCredentialsProvider(
            role_arn=role,
            oidc_provider_arn=provider,
            oidc_token_file_path=token_file,
            role_session_name=given.get("ALIBABA_CLOUD_ROLE_SESSION_NAME", "karpenter"),
            sts_region_id=given.get("ALIBABA_CLOUD_STS_REGION", ""),
            enable_vpc=given.get("ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED", "").lower() == "true",
        )
        return Credential(client=Client(provider=source), provider=source.get_provider_name())
    return Credential(client=Client(), provider="default")
