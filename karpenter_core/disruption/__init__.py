"""Pure: which nodes should go, what comes instead, and what that saves."""
