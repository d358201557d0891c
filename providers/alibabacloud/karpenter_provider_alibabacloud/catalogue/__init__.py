"""The instance type catalogue: type facts, node capacity and offerings."""
