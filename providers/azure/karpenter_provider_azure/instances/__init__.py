"""Virtual machines of the cluster: listing, termination, drift, tags."""
