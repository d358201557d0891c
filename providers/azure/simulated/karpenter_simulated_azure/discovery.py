"""Serves the endpoints of the cloud and its tokens for clients' discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ArmReply

if TYPE_CHECKING:
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["Discovery"]


@final
class Discovery:
    """The documents of discovery; each names the URL that it was asked by."""

    def __init__(self, world: AzureWorld) -> None:
        self._world: Final = world

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        for pattern, handler, action in (
            (
                r"/([^/]+)/v2\.0/\.well-known/openid-configuration",
                self._openid,
                "openidConfiguration:get",
            ),
            (r"/common/discovery/instance", self._instance, "instanceDiscovery:get"),
        ):
            routes.add_page("GET", pattern, handler, action=action)

    def _openid(self, call: ArmCall) -> ArmReply:
        base = f"{call.base_url}/{call.names[0]}"
        return ArmReply(
            body={
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
                "issuer": f"{base}/v2.0",
                "jwks_uri": f"{base}/discovery/v2.0/keys",
            }
        )

    def _instance(self, call: ArmCall) -> ArmReply:
        host = call.base_url.partition("://")[2]
        tenant = f"{call.base_url}/{self._world.tenant_id}"
        return ArmReply(
            body={
                "tenant_discovery_endpoint": f"{tenant}/v2.0/.well-known/openid-configuration",
                "api-version": "1.1",
                "metadata": [
                    {"preferred_network": host, "preferred_cache": host, "aliases": [host]}
                ],
            }
        )
