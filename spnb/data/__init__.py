"""Data: generated questions with known answers."""
