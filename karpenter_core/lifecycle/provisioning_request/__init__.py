"""Computes the next step of ProvisioningRequests."""
