"""ECSNodeClass: what users write, what is found, and what the API server enforces."""
