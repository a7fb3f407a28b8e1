"""Who may queue, and how much KV is committed to whom."""
