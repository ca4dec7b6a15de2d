"""The rules of mirroring, without input or output: positions, numbers, progress, ledger, assignment, placement."""
