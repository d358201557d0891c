"""Azure for karpenter-core: AKSNodeClass, virtual machines, spot instances."""
