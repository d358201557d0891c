"""NodePools: hash, validity, readiness, health of registrations, what they hold."""
