"""Plans disruption: nodes to remove, replacements and savings (pure)."""
