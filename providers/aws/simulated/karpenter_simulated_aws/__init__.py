"""The simulated AWS: moto, with stock, prices, quotas, time and faults."""
