"""Fixtures: a resolver over the simulated AWS, and NodeClasses that fit its ready world."""

from __future__ import annotations

import pytest

from providers.aws.tests.discovery.moto_world import HandClock
from providers.aws.tests.node_class.resolvers import Parts


@pytest.fixture
def clock():
    """A clock that is moved by hand."""
    return HandClock()


@pytest.fixture
def make_parts(aws, clients, clock):
    """Make what resolves NodeClasses of the ready world's cluster; each is a process of its own."""

    def make(**options):
        return Parts(aws, clients, clock, **options)

    return make


@pytest.fixture
def parts(make_parts):
    """A process that has just started."""
    return make_parts()
