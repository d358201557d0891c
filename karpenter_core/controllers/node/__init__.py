"""The end of nodes: termination and the eviction of their pods."""
