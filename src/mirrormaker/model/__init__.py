"""The rules, without input or output: positions, numbers, progress, the ledger format, who mirrors what."""
