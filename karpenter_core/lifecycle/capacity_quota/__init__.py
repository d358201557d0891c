"""Rules about the status of CapacityQuotas."""
