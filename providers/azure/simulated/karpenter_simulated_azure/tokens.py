"""Issues OAuth tokens to the controller's identity; checks them on each call.

A workload presents the token of its service account (`federated_token`) or a client secret. Lifetimes
are judged by the time of the computer, not by the time that tests add to the cloud: the clients of the
SDK keep tokens by the computer's clock.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final
from urllib.parse import parse_qsl

from karpenter_core.provider.kit.simulated.cloud_time import utc_now
from karpenter_simulated_azure.arm_api import ArmFault, ArmReply
from karpenter_simulated_azure.web_tokens import WebTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["CLIENT_SECRET", "FEDERATED_AUDIENCE", "IMAGE_TENANT", "TokenService"]

CLIENT_SECRET: Final = "simulated-client-secret"  # noqa: S105 - of the simulated Azure alone
"""The secret of the controller's application."""
IMAGE_TENANT: Final = "33e01921-4d64-4f8c-a055-5bdaffd5e33d"
"""The tenant of AKS's shared galleries."""
FEDERATED_AUDIENCE: Final = "api://AzureADTokenExchange"
_MANAGEMENT: Final = (
    "https://management.azure.com",
    "https://management.core.windows.net",
)
_OTHERS: Final = ("https://graph.microsoft.com", "https://vault.azure.net")
"""Resources that tokens are issued for and that are no Azure Resource Manager."""
_JWT_BEARER: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_UNAUTHORIZED: Final = 401


@final
class TokenService:
    """The tokens of one tenant."""

    def __init__(
        self, world: AzureWorld, ids: IdGenerator, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._world: Final = world
        self._ids: Final = ids
        self._clock: Final = clock
        self._web_tokens: Final = WebTokens(f"simulated/{world.tenant_id}")
        self._generation = 0
        self.issuer: Final = f"https://oidc.simulated/{world.tenant_id}/"
        self.subject = "system:serviceaccount:kube-system:karpenter-sa"
        """The service account of the federated credential."""
        self.lifetime_seconds = 86_400

    def reset(self) -> None:
        """Restore the defaults; tokens that were issued stay valid."""
        self.lifetime_seconds = 86_400
        self.subject = "system:serviceaccount:kube-system:karpenter-sa"

    def revoke_all(self) -> None:
        """Let every token that was issued be expired."""
        self._generation += 1

    def federated_token(
        self,
        *,
        subject: str = "",
        audience: str = FEDERATED_AUDIENCE,
        lifetime_seconds: float = 86_400 * 365,
    ) -> str:
        """Return the token of a service account, by default of the federated credential's."""
        now = int(self._clock().timestamp())
        return self._web_tokens.sign(
            {
                "iss": self.issuer,
                "sub": subject or self.subject,
                "aud": [audience],
                "nbf": now - 300,
                "exp": now + int(lifetime_seconds),
            }
        )

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes of the token endpoint, and of the service for image tokens."""
        routes.add_page("POST", r"/([^/]+)/oauth2/v2\.0/token", self._issue, action="tokens:post")
        routes.add_page("GET", r"/sig-token", self._issue_image_token, action="imageTokens:get")

    # -- the token endpoint ----------------------------------------------------------------------

    def _issue(self, call: ArmCall) -> ArmReply:
        form = dict(parse_qsl(call.content.decode()))
        refusal = self._refusal(call, form)
        if refusal is not None:
            return refusal
        audience = form["scope"].removesuffix("/.default").rstrip("/")
        now = int(self._clock().timestamp())
        token = self._web_tokens.sign(
            {
                "aud": audience,
                "iss": f"https://sts.windows.net/{self._world.tenant_id}/",
                "iat": now,
                "nbf": now,
                "exp": now + self.lifetime_seconds,
                "appid": self._world.client_id,
                "oid": self._world.object_id,
                "tid": self._world.tenant_id,
                "gen": self._generation,
                "uti": self._ids.uuid(),
            }
        )
        return ArmReply(
            body={
                "token_type": "Bearer",
                "expires_in": self.lifetime_seconds,
                "ext_expires_in": self.lifetime_seconds,
                "access_token": token,
            },
            headers={"Cache-Control": "no-store"},
        )

    def _issue_image_token(self, call: ArmCall) -> ArmReply:
        """Answer as the service of AKS for tokens that permit its shared galleries."""
        if not call.query.get("scope"):
            return ArmReply(status=400, body={"error": "the scope is missing"})
        now = self._clock()
        ends = now + timedelta(seconds=self.lifetime_seconds)
        claims = {"aud": _MANAGEMENT[0], "tid": IMAGE_TENANT, "exp": int(ends.timestamp())}
        return ArmReply(
            body={
                "Token": self._web_tokens.sign(claims),
                "ExpiresOn": ends.isoformat(),
                "RefreshOn": "0001-01-01T00:00:00Z",
            }
        )

    def permit_shared_images(self, call: ArmCall) -> bool:
        """Return whether a call has a token for the shared galleries of AKS in its second header."""
        for each in call.headers.get("x-ms-authorization-auxiliary", "").split(","):
            claims = self._web_tokens.claims(each.strip().removeprefix("Bearer "))
            if claims is not None and claims.get("tid") == IMAGE_TENANT:
                return self._clock().timestamp() < float(claims["exp"])
        return False

    def _refusal(self, call: ArmCall, form: Mapping[str, str]) -> ArmReply | None:
        tenant = call.names[0]
        if tenant.lower() != self._world.tenant_id:
            return self._refuse(
                "invalid_request",
                90002,
                f"Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and"
                " are signing into the correct cloud.",
            )
        if form.get("grant_type") != "client_credentials":
            return self._refuse(
                "unsupported_grant_type",
                70003,
                f"The app requested an unsupported grant type '{form.get('grant_type', '')}'.",
            )
        client = form.get("client_id", "")
        if client.lower() != self._world.client_id:
            return self._refuse(
                "unauthorized_client",
                700016,
                f"Application with identifier '{client}' was not found in the directory '{tenant}'.",
            )
        scope = form.get("scope", "")
        known = (*_MANAGEMENT, *_OTHERS, call.base_url)
        if not scope.endswith("/.default"):
            return self._refuse(
                "invalid_scope",
                1002012,
                f"The provided value for scope {scope} is not valid. Client credential flows must"
                " have a scope value with /.default suffixed to the resource identifier.",
            )
        if scope.removesuffix("/.default").rstrip("/") not in known:
            return self._refuse(
                "invalid_resource",
                500011,
                f"The resource principal named {scope.removesuffix('/.default')} was not found in"
                f" the tenant named {tenant}.",
            )
        if form.get("client_assertion_type") == _JWT_BEARER:
            return self._assertion_refusal(form.get("client_assertion", ""))
        if form.get("client_secret") != CLIENT_SECRET:
            return self._refuse(
                "invalid_client",
                7000215,
                "Invalid client secret provided. Ensure the secret being sent in the request is the"
                " client secret value, not the client secret ID.",
                status=_UNAUTHORIZED,
            )
        return None

    def _assertion_refusal(self, assertion: str) -> ArmReply | None:
        claims = self._web_tokens.claims(assertion)
        if claims is None:
            return self._refuse(
                "invalid_client",
                50027,
                "JWT token is invalid or malformed.",
                status=_UNAUTHORIZED,
            )
        wrong = (
            ("issuer", 700211, claims.get("iss"), self.issuer),
            ("audience", 700212, _first(claims.get("aud")), FEDERATED_AUDIENCE),
            ("subject", 700213, claims.get("sub"), self.subject),
        )
        for part, number, found, expected in wrong:
            if found != expected:
                return self._refuse(
                    "invalid_client",
                    number,
                    f"No matching federated identity record found for presented assertion {part}"
                    f" '{found}'.",
                    status=_UNAUTHORIZED,
                )
        now = self._clock().timestamp()
        if not float(claims["nbf"]) <= now < float(claims["exp"]):
            return self._refuse(
                "invalid_client",
                700024,
                "Client assertion is not within its valid time range.",
                status=_UNAUTHORIZED,
            )
        return None

    def _refuse(self, error: str, number: int, text: str, *, status: int = 400) -> ArmReply:
        trace, correlation = self._ids.uuid(), self._ids.uuid()
        at = f"{self._clock():%Y-%m-%d %H:%M:%SZ}"
        return ArmReply(
            status=status,
            body={
                "error": error,
                "error_description": f"AADSTS{number}: {text} Trace ID: {trace} Correlation ID:"
                f" {correlation} Timestamp: {at}",
                "error_codes": [number],
                "timestamp": at,
                "trace_id": trace,
                "correlation_id": correlation,
            },
        )

    # -- the check of every call -----------------------------------------------------------------

    def check(self, call: ArmCall) -> None:
        """Check the token of a call.

        Raises:
            ArmFault: with the status 401; the token is missing, unreadable, expired, or for
                another resource or tenant.
        """
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        if not token:
            raise self._unauthorized(
                "AuthenticationFailed",
                "Authentication failed. The 'Authorization' header is missing.",
            )
        if scheme.lower() != "bearer":
            raise self._unauthorized(
                "AuthenticationFailedInvalidHeader",
                "Authentication failed. The 'Authorization' header is provided in an invalid"
                " format.",
            )
        claims = self._web_tokens.claims(token)
        if claims is None or "appid" not in claims:
            raise self._unauthorized("InvalidAuthenticationToken", "The access token is invalid.")
        if claims["aud"] not in {*_MANAGEMENT, call.base_url}:
            raise self._unauthorized(
                "InvalidAuthenticationTokenAudience",
                f"The access token has been obtained for wrong audience or resource"
                f" '{claims['aud']}'. It should exactly match with one of the allowed audiences"
                f" '{', '.join(f'{each}/' for each in _MANAGEMENT)}'.",
            )
        if claims["tid"] != self._world.tenant_id:
            raise self._unauthorized(
                "InvalidAuthenticationTokenTenant",
                f"The access token is from the wrong issuer '{claims['iss']}'.",
            )
        now = self._clock().timestamp()
        if now >= float(claims["exp"]) or claims["gen"] != self._generation:
            raise self._unauthorized(
                "ExpiredAuthenticationToken",
                "The access token expiry UTC time is earlier than current UTC time.",
            )

    def _unauthorized(self, code: str, message: str) -> ArmFault:
        challenge = (
            f'Bearer authorization_uri="https://login.microsoftonline.com/{self._world.tenant_id}",'
            f' error="invalid_token", error_description="{message}"'
        )
        return ArmFault(
            code, message, status=_UNAUTHORIZED, headers={"WWW-Authenticate": challenge}
        )


def _first(value: object) -> object:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return next(iter(items), None)
