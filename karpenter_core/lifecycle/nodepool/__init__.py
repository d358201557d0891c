"""What becomes of NodePools: hash, validation, readiness, usage; pure functions of models."""
