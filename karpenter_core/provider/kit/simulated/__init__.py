"""What simulated clouds have in common: their time, the log of calls, faults and throttling."""
