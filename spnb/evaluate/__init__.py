"""Measuring a policy: items, matches, patterns."""
