"""The process: settings, logging, servers, leader election and wiring."""
