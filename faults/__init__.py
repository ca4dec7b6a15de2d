"""Mirrors, brokers and connections are harmed under load, and every record is counted afterwards."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "faults"
