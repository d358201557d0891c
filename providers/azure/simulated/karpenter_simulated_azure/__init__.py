"""A simulated Azure: Resource Manager, tokens and prices on 127.0.0.1."""
