"""Computes the kubelet's pod limit and reservations for an instance type.

The pod limit and reservations of a node follow from the NodeClass, the AMI family and the instance
type. Catalogue and user data both take them from here: if they differed, the scheduler would place
more pods than the node can run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import structlog

from karpenter_core.api.labels import CPU, MEMORY
from karpenter_core.api.quantities import format_amount, parse_quantity
from karpenter_core.errors import BadInputError
from karpenter_provider_aws.type_compatibility import efa_only_interfaces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.families.traits import FamilyTraits
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo

__all__ = [
    "DEFAULT_PODS",
    "Evaluate",
    "KubeletOptions",
    "KubeletSizing",
    "eni_limited_pods",
    "kubelet_sizing",
    "read_kubelet_options",
    "reserved_quantity",
]

DEFAULT_PODS: Final = 110
"""Kubernetes' own default, for families whose pods get no addresses of network interfaces."""
MAX_PODS_LIMIT: Final = 2**31 - 1

Evaluate: TypeAlias = "Callable[[str, Mapping[str, int | str]], int]"
"""Evaluates an expression with its variables; ValueError says what is wrong with it."""

_log: Final[FilteringBoundLogger] = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """The fields of `spec.kubelet` that size a node; texts are quantities or expressions."""

    max_pods: int | str | None
    pods_per_core: int
    kube_reserved: Mapping[str, str]
    system_reserved: Mapping[str, str]
    eviction_hard: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSizing:
    """Kubelet numbers of one NodeClass on one instance type; no number is an expression."""

    max_pods: int
    """The kubelet's `maxPods`, always set: images would otherwise compute their own."""
    pods: int
    """Number of pods of the node: `max_pods`, or less by pods per core."""
    kube_reserved: Mapping[str, str]
    """Reservations of the user, as quantities; defaults are not among them."""
    system_reserved: Mapping[str, str]


def read_kubelet_options(node_class: EC2NodeClass) -> KubeletOptions:
    """Read `spec.kubelet` as far as it sizes nodes.

    Raises:
        BadInputError: a field has a value of another type; names NodeClass, field and value.
    """
    kubelet = node_class.spec.kubelet
    name = node_class.metadata.name
    max_pods = kubelet.get("maxPods")
    if max_pods is not None and (isinstance(max_pods, bool) or not isinstance(max_pods, int | str)):
        raise _mistyped(name, "maxPods", max_pods, "a number or an expression")
    pods_per_core = kubelet.get("podsPerCore")
    if isinstance(pods_per_core, bool) or not isinstance(pods_per_core, int | None):
        raise _mistyped(name, "podsPerCore", pods_per_core, "a number")
    return KubeletOptions(
        max_pods=max_pods,
        pods_per_core=pods_per_core or 0,
        kube_reserved=_texts(name, kubelet, "kubeReserved"),
        system_reserved=_texts(name, kubelet, "systemReserved"),
        eviction_hard=_texts(name, kubelet, "evictionHard"),
    )


def _texts(name: str, kubelet: Mapping[str, object], field_name: str) -> dict[str, str]:
    value = kubelet.get(field_name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _mistyped(name, field_name, value, "a map of texts")
    entries = cast("dict[object, object]", value)
    texts: dict[str, str] = {}
    for key, text in entries.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise _mistyped(name, f"{field_name}.{key}", text, "a text")
        texts[key] = text
    return texts


def _mistyped(name: str, field_name: str, value: object, expected: str) -> BadInputError:
    return BadInputError(
        f'EC2NodeClass "{name}": spec.kubelet.{field_name}: must be {expected}, not {value!r}'
    )


def eni_limited_pods(info: InstanceTypeInfo, *, reserved_enis: int, efa_only: int) -> int:
    """Return how many pods get an address of a network interface.

    Each interface has one address of its own, the rest go to pods; two more pods use the host's
    network. Only the default network card counts, since the CNI plug-in uses no other; interfaces
    kept back and those without addresses (`efa_only`) are lost to pods.
    """
    usable = max(0, info.interfaces - reserved_enis - efa_only)
    return usable * (info.ipv4_per_interface - 1) + 2 if usable else 0


def kubelet_sizing(
    info: InstanceTypeInfo,
    node_class: EC2NodeClass,
    options: KubeletOptions,
    traits: FamilyTraits,
    *,
    reserved_enis: int,
    evaluate: Evaluate | None,
) -> KubeletSizing:
    """Return the numbers for one instance type.

    Without `evaluate` (the gate NodeClassCEL is off) entries that are expressions count for nothing;
    the NodeClass's validation refuses them.

    Raises:
        BadInputError: `maxPods` cannot be evaluated, or is not from 0 to 2^31 - 1.
    """
    efa_only = efa_only_interfaces(node_class.spec.network_interfaces, card=0)
    default = DEFAULT_PODS
    if traits.has_eni_density:
        default = eni_limited_pods(info, reserved_enis=reserved_enis, efa_only=efa_only)
    variables: dict[str, int | str] = {
        "vcpus": info.vcpus,
        "memory_mib": info.memory_mib,
        "default_enis": info.interfaces,
        "ips_per_eni": info.ipv4_per_interface,
        "max_pods": _capped(default, info, options, traits),
        "instance_type": info.name,
    }
    max_pods = _max_pods(node_class, options.max_pods, default, variables, evaluate)
    pods = _capped(max_pods, info, options, traits)
    variables["max_pods"] = pods
    return KubeletSizing(
        max_pods=max_pods,
        pods=pods,
        kube_reserved=_reserved("kubeReserved", options.kube_reserved, variables, evaluate),
        system_reserved=_reserved("systemReserved", options.system_reserved, variables, evaluate),
    )


def _capped(
    pods: int, info: InstanceTypeInfo, options: KubeletOptions, traits: FamilyTraits
) -> int:
    if options.pods_per_core > 0 and traits.honours_pods_per_core:
        return min(pods, options.pods_per_core * info.vcpus)
    return pods


def _max_pods(
    node_class: EC2NodeClass,
    configured: int | str | None,
    default: int,
    variables: Mapping[str, int | str],
    evaluate: Evaluate | None,
) -> int:
    if configured is None:
        return default
    if isinstance(configured, int):
        return configured
    if evaluate is None:
        return default
    where = f'EC2NodeClass "{node_class.metadata.name}": spec.kubelet.maxPods: "{configured}"'
    type_name = variables["instance_type"]
    try:
        result = evaluate(configured, variables)
    except ValueError as error:
        raise BadInputError(f"{where} for {type_name}: {error}") from error
    if not 0 <= result <= MAX_PODS_LIMIT:
        raise BadInputError(f"{where} is {result} for {type_name}, not from 0 to {MAX_PODS_LIMIT}")
    return result


_NOTHING: Final[Mapping[str, str]] = {}
"""One object for the kubelets of a thousand types."""


def _reserved(
    field_name: str,
    entries: Mapping[str, str],
    variables: Mapping[str, int | str],
    evaluate: Evaluate | None,
) -> Mapping[str, str]:
    if not entries:
        return _NOTHING
    resolved: dict[str, str] = {}
    for resource, text in sorted(entries.items()):
        if _is_quantity(text):
            resolved[resource] = text
        elif evaluate is not None:
            # A node with one reservation less is better than none: validation names the mistake.
            try:
                amount = evaluate(text, variables)
            except ValueError as error:
                problem = str(error)
            else:
                if amount >= 0:
                    resolved[resource] = reserved_quantity(resource, amount)
                    continue
                problem = f"it is {amount}"
            _log.warning(
                "kubelet expression dropped",
                field=f"{field_name}.{resource}",
                expression=text,
                instance_type=variables["instance_type"],
                problem=problem,
            )
    return resolved


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


_STEPS: Final = {CPU: 10, MEMORY: 16}
"""Results are rounded up to so many units, lest almost every type have its own launch template."""


def reserved_quantity(resource: str, amount: int) -> str:
    """Return the quantity that the result of an expression stands for.

    CPU is in milli-cores and rounded up to ten, memory in MiB and rounded up to sixteen, ephemeral
    storage in GiB; other resources are counts.
    """
    step = _STEPS.get(resource, 1)
    rounded = -(-amount // step) * step
    match resource:
        case "cpu":
            return format_amount(CPU, rounded)
        case "memory":
            return f"{rounded}Mi"
        case "ephemeral-storage":
            return f"{rounded}Gi"
        case _:
            return str(rounded)
