"""Installs the charts in a cluster, and runs controllers as the pods of the release would run.

No kubelet here starts containers: a process takes the variables and arguments from the Deployment, and
the token of the release's service account, so its rights are those of the chart.
"""

from __future__ import annotations

import asyncio
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.api.quantities import parse_quantity
from karpenter_core.kube.resources import DEPLOYMENTS, ResourceKind
from tests.support.helm import CHART, CRD_CHART, helm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.testing.cluster import ClusterClient, Object
    from tests.support.controlplane import ControlPlane

__all__ = ["AUDIT_SECONDS", "ChartRelease", "ReleaseAccess", "account_of", "denied_requests"]

TOKEN_SECONDS: Final = 24 * 3600
AUDIT_SECONDS: Final = 0.7
"""The audit log is written every half second."""
FORBIDDEN: Final = 403
_SERVICE_ACCOUNTS: Final = ResourceKind(
    "", "v1", "serviceaccounts", "ServiceAccount", namespaced=True
)


class ReleaseAccess(NamedTuple):
    """Identity, variables and arguments of a pod of the release."""

    kubeconfig: Path
    environment: Mapping[str, str]
    arguments: Sequence[str]


def account_of(namespace: str, name: str = "karpenter") -> str:
    """Return the user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


@final
class ChartRelease:
    """A release of the chart `karpenter` in a cluster."""

    def __init__(
        self,
        control_plane: ControlPlane,
        client: ClusterClient,
        folder: Path,
        *,
        name: str = "karpenter",
        namespace: str = "karpenter",
    ) -> None:
        self.name: Final = name
        self.namespace: Final = namespace
        self._control_plane: Final = control_plane
        self._client: Final = client
        self._folder: Final = folder

    async def install_crds(self) -> str:
        """Install the CRDs, or take over those that are there; return what Helm prints."""
        return await self._helm(
            "upgrade", "karpenter-crd", CRD_CHART, "--install", "--take-ownership"
        )

    async def upgrade(
        self, values: Mapping[str, object], *, chart: Path = CHART, wait: bool = False
    ) -> str:
        """Install or upgrade, and wait for ready pods if asked; return what Helm prints.

        CRDs that a chart has of its own are left out.
        """
        path = self._folder / f"{self.name}-values.json"
        path.write_text(json.dumps(values))
        options = ["--wait", "--timeout=90s"] if wait else ["--wait=hookOnly"]
        return await self._helm(
            "upgrade", self.name, chart, "--install", "--skip-crds", f"--values={path}", *options
        )

    async def roll_back(self) -> str:
        """Return to the revision before the present one; return what Helm prints."""
        return await self._helm("rollback", self.name)

    async def uninstall(self, name: str = "") -> str:
        """Remove the release; return what Helm prints."""
        return await self._helm("uninstall", name or self.name, "--ignore-not-found")

    async def _helm(self, command: str, *arguments: str | Path) -> str:
        return await asyncio.to_thread(
            helm,
            command,
            f"--namespace={self.namespace}",
            *(["--create-namespace"] if command == "upgrade" else []),
            *arguments,
            kubeconfig=self._control_plane.kubeconfig,
        )

    async def access(self) -> ReleaseAccess:
        """Return what each pod of the Deployment has now, with a new token."""
        deployment = await self._client.get(DEPLOYMENTS, self.name, self.namespace)
        pod = deployment["spec"]["template"]["spec"]
        container = pod["containers"][0]
        account = pod["serviceAccountName"]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        path = _SERVICE_ACCOUNTS.path(namespace=self.namespace, name=account, subresource="token")
        answer = await self._client.request("POST", path, request)
        return ReleaseAccess(
            kubeconfig=self._control_plane.write_token_kubeconfig(
                f"{self.namespace}-{self.name}", answer["status"]["token"]
            ),
            environment={
                "PATH": os.environ["PATH"],
                **{each["name"]: self._text(each, container) for each in container["env"]},
            },
            arguments=tuple(container["args"]),
        )

    def _text(self, variable: Object, container: Object) -> str:
        """Return the text of a variable, as the kubelet would."""
        match variable:
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}:
                return self.namespace
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                return f"{self.name}-pod"
            case {"valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}:
                kind, _, name = str(resource).partition(".")
                amount = parse_quantity(container["resources"][kind][name])
                return str(int(amount / Decimal(parse_quantity(divisor))))
            case {"valueFrom": other}:
                raise NotImplementedError(other)
            case _:
                return str(variable.get("value", ""))


async def denied_requests(control_plane: ControlPlane, account: str) -> list[str]:
    """Return each kind of request whose last answer to an account was a refusal, by the audit log.

    The account must be one of the control plane's `audited_users`. A refusal that was the last one:
    an API server that has just started knows no roles yet, and refuses everything for a moment.
    """
    await asyncio.sleep(AUDIT_SECONDS)
    last: dict[str, int] = {}
    for line in control_plane.audit_log.read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] == account and "objectRef" in event:
            target = event["objectRef"]
            parts = (target.get("resource"), target.get("subresource"))
            resource = "/".join(filter(None, parts))
            request = f"{event['verb']} {resource} in {target.get('namespace', '')!r}"
            last[request] = int(event["responseStatus"]["code"])
    return [request for request, code in last.items() if code == FORBIDDEN]
