"""Detects drift of claims from their NodeClass; pure functions."""
