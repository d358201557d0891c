"""For tests of this project and of providers: builders, strategies, the conformance kit."""
