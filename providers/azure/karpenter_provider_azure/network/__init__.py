"""Subnets, security groups and load balancers that nodes are attached to."""
