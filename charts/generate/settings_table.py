"""Names the settings of the process as values of the chart, from the options that the code declares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self, TypeAlias, cast

from karpenter_core.operator.option_shapes import DEFAULT_GATES
from karpenter_core.operator.options import OPTIONS
from karpenter_core.operator.settings_loader import options_by_plugin
from karpenter_core.provider.host.manager import load_plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.operator.option_values import ProcessOption

__all__ = [
    "PROVIDERS",
    "SECRETS",
    "Form",
    "Setting",
    "chart_settings",
    "node_class_kinds",
    "required_values",
]

PROVIDERS: Final = ("alibabacloud", "aws", "azure", "kwok")
"""The providers that the chart knows."""
OF_THE_CHART: Final = {
    "cache-folder": "a volume of the pod",
    "context": "controllers in a cluster use its service account",
    "cpu-requests": "controller.resources",
    "health-probe-port": "controller.healthProbe.port",
    "karpenter-service": "has no effect",
    "kubeconfig": "controllers in a cluster use its service account",
    "leader-election-kubeconfig": "needs a mounted file: controller.env",
    "leader-election-namespace": "the namespace of the release, where the permissions are",
    "log-error-output-paths": "logErrorOutputPaths",
    "log-format": "logFormat",
    "log-level": "logLevel",
    "log-output-paths": "logOutputPaths",
    "memory-limit": "controller.resources",
    "metrics-port": "controller.metrics.port",
    "providers": "provider",
    "workload-kubeconfig": "needs a mounted file: controller.env",
}
"""Options that are no value under `settings`, and why."""
SECRETS: Final = {"kubelet-bootstrap-token"}
"""Options whose values come from a Secret (`credentialsSecret`)."""
REQUIRED: Final = {
    "alibabacloud": ("cluster-id",),
    "aws": ("cluster-name",),
    "azure": (
        "cluster-name",
        "cluster-endpoint",
        "kubelet-bootstrap-token",
        "ssh-public-key",
        "vnet-subnet-id",
        "node-resource-group",
        "location",
        "azure-subscription-id",
    ),
    "kwok": (),
}
"""By provider: options without which it does not start. A test starts them."""
_ALTERNATIVES: Final = {"AZURE_SUBSCRIPTION_ID": ("ARM_SUBSCRIPTION_ID",)}
"""Another variable that does instead."""
_WORDS: Final = {
    "aks": "AKS", "api": "API", "ca": "CA", "cs": "CS", "diskencryptionset": "DiskEncryptionSet",
    "dra": "DRA", "ecs": "ECS", "enis": "ENIs", "guid": "GUID", "http": "HTTP", "id": "ID", "ip": "IP",
    "tls": "TLS",
    "osdisk": "OSDisk", "qps": "QPS", "sdk": "SDK", "sig": "SIG", "url": "URL", "vpc": "VPC",
}  # fmt: skip
"""Parts of flags that the reference chart, or the clouds, write in their own way."""
_DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$"  # Go's time.ParseDuration
_NAME_OF_GATE: Final = re.compile(r"([A-Za-z]+)=")

Schema: TypeAlias = "dict[str, object]"


class Form(StrEnum):
    """Conversion of a value into the text of its variable."""

    SCALAR = "scalar"
    LIST = "list"
    """Items, joined by commas."""
    MAP = "map"
    """`key=value`, joined by commas."""
    GATES = "gates"
    """As a map, with a capital letter in front."""
    OBJECT = "object"
    """As JSON."""


_FORMS: Final = {
    "additional-tags": Form.MAP,
    "aws-feature-gates": Form.GATES,
    "commitments": Form.OBJECT,
    "exchange-rates": Form.MAP,
    "feature-gates": Form.GATES,
    "leader-election-labels": Form.MAP,
    "node-identities": Form.LIST,
    "observe-nodes": Form.LIST,
    "repair-conditions": Form.LIST,
    "scheduler-config": Form.OBJECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value under `settings`, and the variable that the controller reads it from."""

    name: str
    env: str
    providers: tuple[str, ...]
    """Providers that read the setting; empty for options of the core."""
    form: Form
    schema: Schema
    help: str
    default: str
    """As a user would write it; providers that share a setting may have their own defaults."""

    @classmethod
    def of(cls, options: Sequence[tuple[str, ProcessOption]]) -> Self:
        """Make the value of one option, which several providers may share."""
        first = options[0][1]
        helps = dict.fromkeys(option.help for _, option in options)
        return cls(
            name=value_name(first.flag),
            env=first.env,
            providers=tuple(provider for provider, _ in options if provider),
            form=_FORMS.get(first.flag, Form.SCALAR),
            schema=_or_null(_schema(first)),
            help=" / ".join(helps),
            default=_default_text(options),
        )


def _default_text(options: Sequence[tuple[str, ProcessOption]]) -> str:
    """Return the default of an option; if its providers have several, each with their names."""
    providers: dict[str, list[str]] = {}
    for provider, option in options:
        if option.default_text:
            providers.setdefault(option.default_text, []).append(provider)
    if len(providers) == 1:
        return next(iter(providers))
    return ", ".join(f"{default} ({', '.join(names)})" for default, names in providers.items())


def chart_settings() -> list[Setting]:
    """Return all values under `settings`, those of the core first."""
    declared = load_plugins().settings()
    groups: dict[str, list[tuple[str, ProcessOption]]] = {
        option.flag: [("", option)] for option in OPTIONS
    }
    for provider, options in options_by_plugin(
        {name: declared[name] for name in PROVIDERS}
    ).items():
        for option in options:
            groups.setdefault(option.flag, []).append((provider, option))
    return [
        Setting.of(options)
        for flag, options in groups.items()
        if flag not in OF_THE_CHART and flag not in SECRETS
    ]


def required_values() -> dict[str, list[Schema]]:
    """Return by provider: the variables that must have a value, and how the chart sets each."""
    variables = {
        option.flag: option.env
        for options in (OPTIONS, *options_by_plugin(load_plugins().settings()).values())
        for option in options
    }
    return {
        provider: [
            {
                "value": "" if flag in SECRETS else value_name(flag),
                "env": [variables[flag], *_ALTERNATIVES.get(variables[flag], ())],
            }
            for flag in flags
        ]
        for provider, flags in REQUIRED.items()
    }


def node_class_kinds() -> dict[str, Schema]:
    """Return by provider: group and plurals of its NodeClass kinds."""
    kinds = {
        name: [model.resource for model in load_plugins().providers[name].info.node_classes]
        for name in PROVIDERS
    }
    return {
        name: {
            "apiGroups": sorted({resource.group for resource in resources}),
            "resources": [resource.plural for resource in resources],
        }
        for name, resources in kinds.items()
    }


def value_name(flag: str) -> str:
    """Return the name of the value, as the reference chart forms it: isolated-vpc -> isolatedVPC."""
    first, *rest = flag.split("-")
    return first + "".join(_WORDS.get(word, word.capitalize()) for word in rest)


def _schema(option: ProcessOption) -> Schema:
    match _FORMS.get(option.flag, Form.SCALAR):
        case Form.GATES:
            gates = DEFAULT_GATES if option.flag == "feature-gates" else str(option.default)
            return {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    gate[0].lower() + gate[1:]: {"type": "boolean"}
                    for gate in sorted(_NAME_OF_GATE.findall(gates))
                },
            }
        case Form.MAP:
            of_rates = option.flag == "exchange-rates"
            return {
                "type": ["object", "string"],
                "additionalProperties": {"type": "number" if of_rates else "string"},
            }
        case Form.LIST:
            return {"type": ["array", "string"], "items": {"type": "string"}}
        case Form.OBJECT:
            return {"type": ["array" if option.flag == "commitments" else "object", "string"]}
        case Form.SCALAR:
            return _scalar(option)


def _or_null(schema: Schema) -> Schema:
    """Return the schema that admits null too: the value of another file is taken back."""
    if "enum" in schema:
        return {**schema, "enum": [*cast("list[str]", schema["enum"]), None]}
    names = cast("str | list[str]", schema["type"])
    return {**schema, "type": [*([names] if isinstance(names, str) else names), "null"]}


def _scalar(option: ProcessOption) -> Schema:
    if option.choices:
        return {"enum": [choice for choice in option.choices if choice]}
    bounds: Schema = {
        key: bound
        for key, bound in (("minimum", option.minimum), ("maximum", option.maximum))
        if isinstance(bound, int | float)
    }
    match option.default:
        case bool():
            return {"type": "boolean"}
        case int():
            # The reference chart quotes numbers (reservedENIs: "0").
            return {"type": ["integer", "string"], "pattern": "^[0-9]+$", **bounds}
        case float():
            return {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$", **bounds}
        case str():
            return {"type": "string"}
        case _:
            return {"type": "string", "pattern": _DURATION}
