"""Starting Spark, and the Spark job whose tasks are the streams."""
