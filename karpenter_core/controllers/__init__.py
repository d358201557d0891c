"""Runs controllers: read the state, call pure functions, apply the results."""
