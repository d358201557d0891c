"""Decides when claims drift from their NodeClass; pure functions."""
