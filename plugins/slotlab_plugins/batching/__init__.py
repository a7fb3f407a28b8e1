"""When requests join the running batch."""
