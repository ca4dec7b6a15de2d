"""Benchmarks: our mirror, the Java MirrorMaker and MirrorMaker 2 on the same clusters and the same data."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
