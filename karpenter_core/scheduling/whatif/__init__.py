"""Evaluates the removal of nodes without changing the cluster's compiled state."""
