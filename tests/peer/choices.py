"""The choices that random clusters are drawn from."""

from __future__ import annotations

ZONE = "topology.kubernetes.io/zone"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
HOSTNAME = "kubernetes.io/hostname"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
POOL = "karpenter.sh/nodepool"
FAMILY = "karpenter.kwok.sh/instance-family"
SIZE = "karpenter.kwok.sh/instance-size"
CORES = "karpenter.kwok.sh/instance-cpu"
TEAM = "example.com/team"
RACK = "example.com/rack"
LEVEL = "example.com/level"

ZONES = ("z1", "z2", "z3")
CAPACITY_TYPES = ("spot", "on-demand")
TEAMS = ("blue", "green")
RACKS = ("r1", "r2", "r3")
NAMESPACES = ("default", "shop")


class Choices:
    """A source of chance that knows which features a cluster has."""

    def __init__(self, generator, features):
        self._generator = generator
        self.features = frozenset(features)

    def has(self, feature):
        return feature in self.features

    def chance(self, percent, feature=None):
        """Be true so often, and never without the feature; draws the same number in any case."""
        drawn = self._generator.random() * 100 < percent
        return drawn and (feature is None or feature in self.features)

    def one(self, values):
        return self._generator.choice(values)

    def some(self, values, least=1, most=None):
        """Choose some, in the order of the values."""
        count = self.number(least, min(len(values), most or len(values)))
        chosen = set(self._generator.sample(range(len(values)), count))
        return [value for index, value in enumerate(values) if index in chosen]

    def number(self, least, most):
        return self._generator.randint(least, most)
