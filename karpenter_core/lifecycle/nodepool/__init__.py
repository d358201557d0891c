"""Computes NodePools' hash, conditions and usage; pure functions of models."""
