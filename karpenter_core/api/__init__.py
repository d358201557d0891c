"""Kubernetes objects: our kinds as models, Kubernetes' kinds as records."""
