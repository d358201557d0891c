"""The declarations of the process's metrics, and the types that compute them."""
