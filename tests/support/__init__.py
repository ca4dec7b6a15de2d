"""Helpers that tests, benchmarks and fault cases share: mirrors as processes, records to write and to read, secure clusters."""
