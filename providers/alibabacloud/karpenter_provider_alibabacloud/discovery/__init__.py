"""Finds the Alibaba Cloud resources that a NodeClass selects."""
