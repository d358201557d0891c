"""The loop that serves ProvisioningRequests."""
