"""From runs to tables, figures and verdicts."""
