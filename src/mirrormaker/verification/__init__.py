"""`mirrormaker verify`: compare the records of source and target with Spark."""
