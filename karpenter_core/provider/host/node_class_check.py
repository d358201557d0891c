"""Checks the names of a NodeClass, before the API server refuses them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_core.api.base import CustomResource

__all__ = ["resource_problem"]

_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+"
_VERSION: Final = r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?"
_KIND: Final = r"[A-Z][A-Za-z0-9]{0,62}"
_WORD: Final = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_RULES: Final = (
    ("group", _DOMAIN, "a domain in lower case, such as karpenter.mycloud.example.com"),
    ("version", _VERSION, "a version such as v1, v1beta1 or v1alpha1"),
    ("kind", _KIND, "a name in CamelCase, such as MyCloudNodeClass"),
    ("plural", _WORD, "a name in lower case, such as mycloudnodeclasses"),
    ("singular", _WORD, "a name in lower case, such as mycloudnodeclass"),
)


def resource_problem(resource: CustomResource) -> str:
    """Return the error of a name that the API server would refuse; empty if there is none."""
    for field, pattern, wanted in _RULES:
        value: object = getattr(resource, field)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            return f"resource.{field} must be {wanted}, not {value!r}"
    return ""
