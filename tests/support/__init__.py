"""Test infrastructure: control planes, processes, scheduling problems."""
