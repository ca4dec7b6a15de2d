"""Breaking things on purpose."""
