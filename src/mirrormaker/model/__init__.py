"""The rules of mirroring, without input or output: positions, numbers, progress, the ledger's format, assignment, placement."""
