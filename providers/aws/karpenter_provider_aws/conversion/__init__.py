"""`karpenter convert`: older kinds and node groups to EC2NodeClasses of v1."""
