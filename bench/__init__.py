"""Ours, the Java MirrorMaker and MirrorMaker 2 side by side, on the same clusters and the same data."""
