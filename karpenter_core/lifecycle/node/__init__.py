"""Decides how a Node drains, is repaired, interrupted and ended; pure functions."""
