"""The launch state machine that cloud providers share: one instance per NodeClaim, never two."""
