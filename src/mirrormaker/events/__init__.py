"""Everything that a mirror reports while it runs, as values, with the one sentence for each."""
