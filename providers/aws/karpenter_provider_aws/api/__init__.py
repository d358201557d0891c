"""The EC2NodeClass API: spec, status, and the rules of its CRD."""
