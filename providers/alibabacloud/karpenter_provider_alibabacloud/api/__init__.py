"""The ECSNodeClass API: spec, status, and the rules of its CRD."""
