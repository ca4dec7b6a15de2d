"""What people look at: the summary at the start, progress, and the totals at the end."""
