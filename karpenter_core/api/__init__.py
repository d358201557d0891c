"""Kubernetes objects: our kinds as models, Kubernetes' own kinds as records."""
