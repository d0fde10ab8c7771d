"""Engines answer requests: token ids in, token ids and log-probabilities out."""
