"""Decides which actions the controller's identity may do, by scope.

It may do everything at first. Actions are named as roles name them:
`Microsoft.Compute/virtualMachines/write`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Self, final

from karpenter_simulated_azure.arm_api import ArmFault, ArmReply

if TYPE_CHECKING:
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["Permissions", "TakenPermission", "action_of"]

_FORBIDDEN: Final = 403
_PERMISSIONS_OF: Final = r"(/subscriptions/.+)/providers/Microsoft\.Authorization/permissions"
_VERBS: Final = {
    "GET": "read",
    "LIST": "read",
    "PUT": "write",
    "PATCH": "write",
    "DELETE": "delete",
    "POST": "action",
}


def action_of(call: ArmCall) -> str:
    """Return the action that a call needs."""
    return f"{call.resource_type}/{_VERBS.get(call.method, 'action')}"


@dataclass(slots=True, kw_only=True, eq=False)
class TakenPermission:
    """A permission that was taken away; as a context manager, as long as the context."""

    action: str
    """A shell pattern for actions."""
    scope: str
    """A shell pattern for the scopes, without regard to case."""
    taken: list[TakenPermission] = field(repr=False)

    def covers(self, action: str, scope: str) -> bool:
        """Return whether an action over a scope is taken away."""
        return fnmatchcase(action.lower(), self.action.lower()) and fnmatchcase(
            scope.lower(), self.scope.lower()
        )

    def end(self) -> None:
        """Grant it again."""
        if self in self.taken:
            self.taken.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@final
class Permissions:
    """The permissions of the identity of the controller."""

    def __init__(self, world: AzureWorld) -> None:
        self._world: Final = world
        self._taken: Final[list[TakenPermission]] = []

    def clear(self) -> None:
        """Grant everything again."""
        self._taken.clear()

    def take(self, action: str, *, scope: str = "*") -> TakenPermission:
        """Take the permission for actions over scopes away; both are shell patterns."""
        taken = TakenPermission(action=action, scope=scope, taken=self._taken)
        self._taken.append(taken)
        return taken

    def allow(self, action: str, scope: str) -> bool:
        """Return whether an action over a scope is permitted."""
        return not any(each.covers(action, scope) for each in self._taken)

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the route that tells what the identity may do at a scope."""
        routes.add_page("GET", _PERMISSIONS_OF, self._list, action="permissions:list", public=False)

    def _list(self, call: ArmCall) -> ArmReply:
        """Return the only role assignment, without the actions that were taken away at the scope."""
        scope = call.names[0].lower()
        taken = [each.action for each in self._taken if fnmatchcase(scope, each.scope.lower())]
        return ArmReply(body={"value": [{"actions": ["*"], "notActions": taken}]})

    def check(self, call: ArmCall) -> None:
        """Check that a call is permitted.

        Raises:
            ArmFault: 403 `AuthorizationFailed`, naming the action.
        """
        if call.operation_class == "graph":  # answers with what is permitted instead
            return
        if not self.allow(action_of(call), call.path):
            raise self.denial(call)

    def check_linked(self, call: ArmCall, action: str, linked_scope: str) -> None:
        """Check that a call may use another resource: join a subnet, assign an identity.

        Raises:
            ArmFault: 403 `LinkedAuthorizationFailed`, naming both actions.
        """
        if not self.allow(action, linked_scope):
            raise ArmFault(
                "LinkedAuthorizationFailed",
                f"{self._client} has permission to perform action '{action_of(call)}' on scope"
                f" '{call.path}'; however, it does not have permission to perform action(s)"
                f" '{action}' on the linked scope(s) '{linked_scope}' (respectively) or the linked"
                " scope(s) are invalid.",
                status=_FORBIDDEN,
            )

    def denial(self, call: ArmCall) -> ArmFault:
        """Return the refusal of a call that no role permits."""
        return ArmFault(
            "AuthorizationFailed",
            f"{self._client} does not have authorization to perform action '{action_of(call)}' over"
            f" scope '{call.path}' or the scope is invalid. If access was recently granted, please"
            " refresh your credentials.",
            status=_FORBIDDEN,
        )

    @property
    def _client(self) -> str:
        return f"The client '{self._world.client_id}' with object id '{self._world.object_id}'"
