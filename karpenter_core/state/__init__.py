"""Pure: the cluster as one immutable Snapshot, built event by event."""
