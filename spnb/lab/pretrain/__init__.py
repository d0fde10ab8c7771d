"""How the shipped policies were made; a program, not a library."""
