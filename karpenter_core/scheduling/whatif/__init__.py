"""Evaluates the removal of nodes without changing the compiled state."""
