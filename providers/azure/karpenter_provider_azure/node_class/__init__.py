"""Resolution and validation of an AKSNodeClass."""
