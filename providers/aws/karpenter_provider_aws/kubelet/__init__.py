"""The kubelet of a node: what may be configured, and the numbers that follow from it."""
