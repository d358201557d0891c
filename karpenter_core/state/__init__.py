"""Holds the cluster as one immutable Snapshot, built from events (pure)."""
