"""Do source and target hold the same records? A Spark job that reads both, and says so in one line."""
