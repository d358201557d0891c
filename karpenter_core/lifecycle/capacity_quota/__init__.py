"""Computes the status of CapacityQuotas."""
