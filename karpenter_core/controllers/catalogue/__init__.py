"""Refreshes the instance-type catalogue of every NodePool."""
