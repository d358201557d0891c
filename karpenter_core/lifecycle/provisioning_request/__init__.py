"""Rules of ProvisioningRequests."""
