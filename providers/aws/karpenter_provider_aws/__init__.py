"""Amazon EC2 as a provider of karpenter-core."""
