"""Pure: what the next step in the life of a NodePool, NodeClaim or Node is."""
