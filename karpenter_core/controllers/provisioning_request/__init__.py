"""Runs the controller of ProvisioningRequests."""
