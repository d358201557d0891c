"""Kubernetes objects as this project sees them: our kinds as models, Kubernetes' as records."""
