"""The controller of CapacityQuotas."""
