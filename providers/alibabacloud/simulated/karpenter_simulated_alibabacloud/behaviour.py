"""Settings of the simulated cloud's speed and fidelity."""

from __future__ import annotations

from dataclasses import dataclass

from karpenter_core.provider.kit.simulated import behaviour

__all__ = ["CloudBehaviour"]


@dataclass(slots=True, kw_only=True)
class CloudBehaviour(behaviour.CloudBehaviour):
    """Delays in seconds, and what Alibaba Cloud does by itself; pending instances do not start yet."""

    starting_seconds: float = 0
    """From `Starting` to `Running`."""
    stopping_seconds: float = 0
    """From a call that stops an instance to `Stopped`."""
    spot_notice_seconds: float = 300
    reports_stock: bool = False
    """Whether DescribeAvailableResource knows at once of what is sold out."""
    addresses_per_instance: int | None = 1
    """Addresses of its vSwitch that an instance takes; None for one for each pod too, as under
    Terway when all addresses of an instance are in use."""
    instances_per_page: int = 100
    """0 makes every page empty, with a token of the next."""
    tokens_in_progress: int = 0
    """Repetitions of a known client token that are refused as still in progress."""
    token_in_progress_code: str = "IdempotentProcessing"  # noqa: S105 - an error code
    """The code that refuses these; `LastTokenProcessing` is the other code."""
    launch_seconds: float = 0
    """ECS works for so long on a call that launches before it can answer. The caller loses patience: the
    connection is cut, the token is in progress until then, and its instances are described one after the
    other."""
    tags_added: tuple[tuple[str, str], ...] = ()
    """Tags that the account puts on each new instance by itself, as `acs:tag:createdby`."""
    latency_seconds: float = 0
    """Duration of every call, in real time."""
