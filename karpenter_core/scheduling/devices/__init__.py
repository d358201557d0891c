"""Allocates devices to ResourceClaims, as the Kubernetes scheduler does.

Kubernetes calls this allocation by structured parameters.
"""
