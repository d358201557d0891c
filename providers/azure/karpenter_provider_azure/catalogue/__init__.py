"""Instance types of the region: VM sizes, offerings, quotas."""
