"""The driver's side: which topics, whose partitions, from where, and the Spark job that copies them."""
