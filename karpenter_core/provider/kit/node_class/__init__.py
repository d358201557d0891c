"""The NodeClass resolution and validation that cloud providers share."""
