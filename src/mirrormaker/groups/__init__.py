"""Consumer groups of the source on the target: their offsets are translated and kept in step."""
