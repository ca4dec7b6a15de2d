"""Helpers that tests, benchmarks and fault cases share."""
