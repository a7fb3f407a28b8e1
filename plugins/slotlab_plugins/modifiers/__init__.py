"""What wraps the chosen policy."""
