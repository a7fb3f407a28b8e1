"""What a real engine runs."""
