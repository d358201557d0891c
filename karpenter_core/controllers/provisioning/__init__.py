"""Pending pods become NodeClaims: batcher, planner port, pass, creation."""
