"""The contract between karpenter-core and the plug-in that owns a cloud."""
