"""Kubernetes access: transport, informers, the writer, Events, the lease."""
