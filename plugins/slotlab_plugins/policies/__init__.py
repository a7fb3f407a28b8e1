"""Who runs first, and who gives way."""
