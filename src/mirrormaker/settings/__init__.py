"""Command line options and property files, read and checked, as typed values."""
