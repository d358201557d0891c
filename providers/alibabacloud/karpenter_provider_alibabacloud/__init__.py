"""Alibaba Cloud ECS as a provider of karpenter-core."""
