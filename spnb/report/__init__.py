"""From runs to tables, figures and verdicts."""

from spnb.report.claims import load_claims, verdict_table, verdicts
from spnb.report.frame import Frames, Measure, compare, gather, records
from spnb.report.show import exhibit
from spnb.report.tables import load_measures
from spnb.train.find import find_runs

__all__ = [
    "Frames",
    "Measure",
    "compare",
    "exhibit",
    "find_runs",
    "gather",
    "load_claims",
    "load_measures",
    "records",
    "verdict_table",
    "verdicts",
]
