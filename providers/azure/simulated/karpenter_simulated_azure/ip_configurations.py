"""Reads IP configurations of network interfaces; assigns addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from karpenter_simulated_azure.arm_api import ArmFault
from karpenter_simulated_azure.network_resources import LOAD_BALANCER_TYPE, SUBNET_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_simulated_azure.networks import Networks

    Permit = Callable[[str, str], None]
    """Checks that an action over another resource is permitted; raises `ArmFault`."""

__all__ = ["IpConfiguration", "Permit", "id_of", "missing", "read_configurations", "with_addresses"]

_POOL_TYPE: Final = f"{LOAD_BALANCER_TYPE}/backendAddressPools"
_MOST_CONFIGURATIONS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class IpConfiguration:
    """An IP configuration with its address."""

    name: str
    subnet_id: str
    primary: bool
    pool_ids: tuple[str, ...]
    address: str


def read_configurations(
    networks: Networks, nic_id: str, properties: JsonMapping, permit: Permit
) -> Iterator[IpConfiguration]:
    """Return the IP configurations that a body asks for, without addresses.

    Raises:
        ArmFault: `InvalidRequestFormat`, or `InvalidResourceReference` with the missing id.
    """
    items = _objects(properties.get("ipConfigurations"))
    if not 0 < len(items) <= _MOST_CONFIGURATIONS:
        raise _malformed(f"{nic_id} has {len(items)} ipConfigurations, not 1 to 256.")
    names = [str(each.get("name", "")) for each in items]
    if len(set(names)) < len(names) or not all(names):
        raise _malformed(f"The ipConfigurations of {nic_id} have no names of their own.")
    bodies = [cast("JsonObject", each.get("properties") or {}) for each in items]
    if len(items) > 1 and sum(each.get("primary") is True for each in bodies) != 1:
        raise _malformed(f"Not exactly one of the ipConfigurations of {nic_id} is primary.")
    permitted: set[str] = set()
    for name, body in zip(names, bodies, strict=True):
        subnet_id = id_of(body.get("subnet"))
        subnet = networks.subnet(subnet_id)
        if subnet is None:
            raise missing(nic_id, subnet_id)
        pool_ids = [id_of(each) for each in _objects(body.get("loadBalancerBackendAddressPools"))]
        for pool_id in pool_ids:
            if not networks.has_backend_pool(pool_id):
                raise missing(nic_id, pool_id)
        for kind, scope in (
            (SUBNET_TYPE, subnet.id),
            *((_POOL_TYPE, each) for each in pool_ids),
        ):
            if scope not in permitted:
                permit(f"{kind}/join/action", scope)
                permitted.add(scope)
        yield IpConfiguration(
            name=name,
            subnet_id=subnet.id,
            primary=body.get("primary") is True or len(items) == 1,
            pool_ids=tuple(pool_ids),
            address="",
        )


def with_addresses(
    networks: Networks,
    nic_id: str,
    before: Sequence[IpConfiguration],
    wanted: Sequence[IpConfiguration],
) -> tuple[IpConfiguration, ...]:
    """Return the IP configurations with addresses: those that they have, or new ones.

    Raises:
        ArmFault: `SubnetIsFull`.
    """
    old = {(each.name, each.subnet_id): each for each in before}
    kept = {
        each.name: old[each.name, each.subnet_id].address
        for each in wanted
        if (each.name, each.subnet_id) in old
    }
    new = [each for each in wanted if each.name not in kept]
    given: dict[str, str] = {}
    for subnet_id in dict.fromkeys(each.subnet_id for each in new):
        subnet = networks.subnet(subnet_id)
        if subnet is None:
            raise missing(nic_id, subnet_id)
        names = [each.name for each in new if each.subnet_id == subnet_id]
        owners = [f"{nic_id}/ipConfigurations/{name}" for name in names]
        given |= dict(zip(names, subnet.allocate(owners), strict=True))
    for each in old.values():
        subnet = networks.subnet(each.subnet_id)
        if subnet is not None and each.address not in kept.values():
            subnet.release([each.address])
    return tuple(
        IpConfiguration(
            name=each.name,
            subnet_id=each.subnet_id,
            primary=each.primary,
            pool_ids=each.pool_ids,
            address=kept.get(each.name) or given[each.name],
        )
        for each in wanted
    )


def _objects(value: object) -> Sequence[JsonObject]:
    if not isinstance(value, list):
        return []
    items = cast("list[object]", value)
    return [cast("JsonObject", each) for each in items if isinstance(each, dict)]


def id_of(value: object) -> str:
    """Return the id of a reference; empty if there is none."""
    return str(cast("JsonObject", value).get("id") or "") if isinstance(value, dict) else ""


def _malformed(message: str) -> ArmFault:
    return ArmFault("InvalidRequestFormat", f"Cannot parse the request. {message}")


def missing(referrer: str, wanted: str) -> ArmFault:
    """Return the refusal of a reference to a resource that does not exist."""
    return ArmFault(
        "InvalidResourceReference",
        f"Resource {wanted} referenced by resource {referrer} was not found. Please make sure that"
        " the referenced resource exists, and that both resources are in the same region.",
    )
