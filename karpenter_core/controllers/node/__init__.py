"""Terminates nodes, evicts their pods and repairs unhealthy nodes."""
