"""`mirrormaker offsets`: how far a consumer group is."""
