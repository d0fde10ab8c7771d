"""Requests, episodes, rewards, advantages: no torch and no paper's name."""
