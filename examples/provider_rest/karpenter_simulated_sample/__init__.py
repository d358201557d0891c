"""A simulated cloud for the sample provider, its demo, and its subject for the conformance kit."""
