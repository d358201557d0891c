"""Runs the controller of CapacityQuotas."""
