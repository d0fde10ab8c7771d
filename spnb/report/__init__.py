"""From runs to tables, figures and claims."""
