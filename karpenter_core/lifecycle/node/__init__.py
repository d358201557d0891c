"""Computes how Nodes drain, are repaired, interrupted and terminated."""
