"""Parts that simulated clouds share: time, the log of calls, faults, throttling."""
