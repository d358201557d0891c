"""Manifests of a device class, a device and claims for it."""

from __future__ import annotations

from typing import Any

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"
CLASS: dict[str, Any] = {
    "apiVersion": API,
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}
DEVICE = {"name": "gpu-0", "attributes": {"model": {"string": "a100"}}}


def claim(name: str, model: str = "a100") -> dict[str, Any]:
    """Return a claim for one device of a model."""
    expression = f'device.attributes["{DRIVER}"].model == "{model}"'
    exactly = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
