"""The process: settings, logging, servers, leader election and the wiring of it all."""
