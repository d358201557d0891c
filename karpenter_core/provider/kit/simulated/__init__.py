"""Common parts of simulated clouds: time, call log, faults, throttling."""
