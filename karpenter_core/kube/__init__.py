"""Talking to Kubernetes: transport, informers, the one door for writes, the lease."""
