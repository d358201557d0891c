"""The simulated AWS: moto behind a layer that has stock, prices, quotas, time and faults."""
