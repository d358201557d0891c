"""The kwok provider keeps the contract."""

from __future__ import annotations

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.testing.conformance import *  # noqa: F403
from karpenter_core.testing.conformance import Subject
from karpenter_provider_kwok.api import KWOKNodeClass
from karpenter_provider_kwok.plugin import KwokProvider


@pytest.fixture
def subject() -> Subject:
    return Subject(
        name="kwok",
        make=KwokProvider,
        node_class=KWOKNodeClass(metadata=ObjectMeta(name="default", uid="uid-of-class")),
    )
