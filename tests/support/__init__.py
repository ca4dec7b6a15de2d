"""What tests, benches and fault cases share: mirrors as processes, records to write and to read back, secure clusters."""
