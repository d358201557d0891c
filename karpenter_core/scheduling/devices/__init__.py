"""Allocates devices to ResourceClaims, as the Kubernetes scheduler does (structured parameters)."""
