"""For tests of providers: builders, a provider's stage and world, the conformance kit."""
