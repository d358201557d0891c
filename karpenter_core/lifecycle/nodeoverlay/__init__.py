"""Pure rules for NodeOverlays: validation, evaluation, conditions."""
