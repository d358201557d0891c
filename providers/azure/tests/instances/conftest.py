"""A cluster's virtual machines in memory."""

from __future__ import annotations

import pytest

from .fake_azure import World


@pytest.fixture
def world():
    return World()
