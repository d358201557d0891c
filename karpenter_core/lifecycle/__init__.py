"""Computes the next step of NodePools, NodeClaims and Nodes."""
