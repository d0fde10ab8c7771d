"""From runs to tables, figures and verdicts."""

from spnb.report.claims import load_claims, verdict_table, verdicts
from spnb.report.frame import Frames, Measure, gather, load_measures, records
from spnb.report.papers import rlvr as studies  # as the notebooks name it
from spnb.report.papers import spiral
from spnb.report.show import exhibit
from spnb.train.find import find_runs

__all__ = [
    "Frames",
    "Measure",
    "exhibit",
    "find_runs",
    "gather",
    "load_claims",
    "load_measures",
    "records",
    "spiral",
    "studies",
    "verdict_table",
    "verdicts",
]
