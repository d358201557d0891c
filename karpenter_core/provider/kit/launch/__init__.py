"""The launch state machine of all clouds: one instance per claim, no more."""
