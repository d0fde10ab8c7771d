"""From runs to tables, figures and verdicts."""

from spnb.report.claims import load_claims, verdict_table, verdicts
from spnb.report.find import find_runs
from spnb.report.frame import Frames, Measure, gather, load_measures, records
from spnb.report.show import exhibit

__all__ = [
    "Frames",
    "Measure",
    "exhibit",
    "find_runs",
    "gather",
    "load_claims",
    "load_measures",
    "records",
    "verdict_table",
    "verdicts",
]
