"""Small programs to start from: each runs by itself, and says how."""
