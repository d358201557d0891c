"""Finds the AWS resources that a NodeClass selects."""
