"""Decides the next step in the life of a NodeClaim; pure functions."""
