"""Computes the next step in the life cycle of NodeClaims; pure functions."""
