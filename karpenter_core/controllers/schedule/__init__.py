"""Opens and closes the windows of NodePools' schedules in time."""
