"""Tests of the offset map on the target."""
