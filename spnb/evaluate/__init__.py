"""Measuring a policy: items, matches, patterns."""

from spnb.core.stats import pass_at_k

__all__ = ["pass_at_k"]
