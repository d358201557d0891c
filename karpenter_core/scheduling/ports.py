"""Checks host ports for conflicts on one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.records import HostPort

__all__ = ["first_port_conflict", "port_text", "ports_conflict"]

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - nothing is bound here


def ports_conflict(first: HostPort, second: HostPort) -> bool:
    """Whether two ports exclude each other: same number and protocol, overlapping addresses."""
    return (
        first.port == second.port
        and first.protocol == second.protocol
        and (first.ip == second.ip or first.ip in _ANY_ADDRESS or second.ip in _ANY_ADDRESS)
    )


def first_port_conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> HostPort | None:
    """Return the first wanted port that is taken; None when all are free."""
    taken = tuple(taken)
    for port in wanted:
        if any(ports_conflict(port, other) for other in taken):
            return port
    return None


def port_text(port: HostPort) -> str:
    """Write a port for people."""
    return f"IP={port.ip} Port={port.port} Proto={port.protocol}"
