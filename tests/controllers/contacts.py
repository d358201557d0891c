"""A source of stale kinds that tests control."""

from __future__ import annotations

from karpenter_core.kube.contact import StaleKind


class Contacts:
    """Kinds that are stale as a test says."""

    def __init__(self):
        self.stale_kinds = {}
        self.listeners = []

    def stale(self):
        return tuple(self.stale_kinds.values())

    def subscribe_fresh(self, listener):
        self.listeners.append(listener)

    def lose(self, kind, seconds=100.0, trouble=""):
        self.stale_kinds[kind] = StaleKind(kind=kind, seconds=seconds, problem=trouble)

    def regain(self, kind):
        del self.stale_kinds[kind]
        for listener in self.listeners:
            listener(kind)
