"""The console of a running mirror: the summary at the start, progress, and the totals at the end."""
