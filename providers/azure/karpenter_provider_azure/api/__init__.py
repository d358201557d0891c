"""The AKSNodeClass API."""
