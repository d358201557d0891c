r"""Writes the custom data of a node: a shell script that starts the image's provisioning scripts.

Node images of AKS have the provisioning scripts. The script here sets their variables, one on a line,
sorted, as `NAME="value"` with `\`, `"`, `$` and `` ` `` escaped by `\`, and starts them. Readers of custom
data can rely on this form. The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_provider_azure.bootstrap.script_variables import script_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration

__all__ = ["LARGEST_BYTES", "custom_data", "shell_script"]

LARGEST_BYTES: Final = 65_535
"""Size limit of custom data before it is written in base64 (Azure)."""

_SPECIAL: Final = re.compile(r'([\\"$`])')
_BEGINNING: Final = """\
#!/bin/bash
# Sets the variables of the provisioning scripts and starts them.
set -o allexport
"""
# Scripts wait for the mark in manifest.json; the folder of events is that of an extension, which may
# be missing.
_END: Final = """\
mkdir -p /var/log/azure/Microsoft.Azure.Extensions.CustomScript/events
printf '#EOF\\n' >> /opt/azure/manifest.json
tries=0
until grep -qs EOF /opt/azure/containers/provision.sh; do
  tries=$((tries + 1))
  [ "$tries" -lt 1200 ] || exit 100
  sleep 1
done
exec /usr/bin/nohup /bin/bash /opt/azure/containers/provision_start.sh
"""


def custom_data(boot: BootConfiguration) -> str:
    """Return the custom data of a node, in base64.

    Raises:
        NodeClassNotReadyError: a field of the NodeClass is unusable, or the script is too large.
    """
    script = shell_script(script_variables(boot)).encode()
    if len(script) > LARGEST_BYTES:
        raise NodeClassNotReadyError(
            f'NodeClaim "{boot.node_claim.name}": custom data with its labels and taints has '
            f"{len(script):,} bytes, and Azure takes {LARGEST_BYTES:,} at most"
        )
    return base64.b64encode(script).decode("ascii")


def shell_script(variables: Mapping[str, str]) -> str:
    """Return the script that sets these variables."""
    lines = (f'{name}="{_SPECIAL.sub(_ESCAPED, variables[name])}"\n' for name in sorted(variables))
    return f"{_BEGINNING}{''.join(lines)}{_END}"


_ESCAPED: Final = r"\\\1"
