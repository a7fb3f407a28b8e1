"""What a run leaves behind: its tables, the figures computed from them, comparisons and charts."""
