"""Finds, lists, terminates and tags instances, and detects their drift."""
