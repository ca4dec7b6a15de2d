"""What the user wrote, as typed values: options, property files, addresses."""
