"""Maintains NodePools' hash, conditions and usage."""
