"""The CustomResourceDefinition of CapacityQuota, and such objects.

The definition has the schema, limits and rules of `k8s.io/autoscaler/cluster-autoscaler/apis`
(`config/crd`, v1beta1), without descriptions: that Go module is not in the module proxy of every build.
"""

from __future__ import annotations

from typing import Any

__all__ = ["API_VERSION", "DEFINITION", "capacity_quota"]

API_VERSION = "autoscaling.x-k8s.io/v1beta1"
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
AMOUNTS = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": True,
    },
}
CONDITION = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {"type": "string", "maxLength": 316},
    },
}
SELECTOR = {
    "type": "object",
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "matchExpressions": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["key", "operator"],
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"type": "string"},
                    "values": {
                        "type": "array",
                        "x-kubernetes-list-type": "atomic",
                        "items": {"type": "string"},
                    },
                },
            },
        },
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["limits"],
            "properties": {
                "selector": SELECTOR,
                "limits": {
                    "type": "object",
                    "required": ["resources"],
                    "properties": {
                        "resources": {
                            **AMOUNTS,
                            "maxProperties": 20,
                            "x-kubernetes-validations": [
                                {
                                    "rule": "self.all(key, size(key) <= 63)",
                                    "message": "Resource names must be 63 characters or less.",
                                },
                                {
                                    "rule": "self.all(key, type(self[key]) == int ? self[key] >= 0 : "
                                    "(!self[key].startsWith('-') && quantity(self[key]).isInteger()))",
                                    "message": "All resource quantities must be non-negative integers.",
                                },
                            ],
                        }
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "conditions": {
                    "type": "array",
                    "items": CONDITION,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
                "observedGeneration": {"type": "integer", "format": "int64"},
                "used": {
                    "type": "object",
                    "required": ["resources"],
                    "properties": {"resources": AMOUNTS},
                },
            },
        },
    },
}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "capacityquotas.autoscaling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "scope": "Cluster",
        "names": {
            "kind": "CapacityQuota",
            "listKind": "CapacityQuotaList",
            "plural": "capacityquotas",
            "singular": "capacityquota",
            "shortNames": ["cq"],
        },
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}


def capacity_quota(name: str = "team", *, selector: Any = None, **resources: Any) -> dict[str, Any]:
    """Return a quota; `price` is the limit of the price per hour."""
    limits = {
        "karpenter.sh/price-per-hour" if key == "price" else key: value
        for key, value in resources.items()
    }
    spec: dict[str, Any] = {"limits": {"resources": limits}}
    if selector is not None:
        spec["selector"] = selector
    return {
        "apiVersion": API_VERSION,
        "kind": "CapacityQuota",
        "metadata": {"name": name},
        "spec": spec,
    }
