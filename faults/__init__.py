"""Fault cases: harm mirrors, brokers and connections under load, and count every record afterwards."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "faults"
