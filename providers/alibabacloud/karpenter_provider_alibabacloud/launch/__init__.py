"""Launches instances for NodeClaims."""
