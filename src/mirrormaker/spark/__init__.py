"""Starting Spark, and the Spark job that copies."""
