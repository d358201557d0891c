"""Fixtures: processes that launch over the simulated AWS."""

from __future__ import annotations

import pytest

from providers.aws.tests.discovery.moto_world import HandClock
from providers.aws.tests.launch.processes import Process, node_class_of


@pytest.fixture
def clock():
    """A clock that is moved by hand."""
    return HandClock()


@pytest.fixture
def make_process(aws, clients, clock):
    """Start a process; each knows nothing of the others."""

    def make(**options):
        return Process(aws, clients, clock, **options)

    return make


@pytest.fixture
def process(make_process):
    return make_process()


@pytest.fixture
def node_class(aws, clients):
    """A NodeClass that can be launched."""
    return node_class_of(aws, clients)
