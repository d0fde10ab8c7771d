"""From runs to tables, figures and verdicts."""

from spnb.report.claims import load_claims
from spnb.report.frame import Frames, gather
from spnb.report.papers import rlvr as studies  # as the notebooks name it
from spnb.report.papers import spiral
from spnb.report.show import exhibit
from spnb.train.find import find_runs

__all__ = ["Frames", "exhibit", "find_runs", "gather", "load_claims", "spiral", "studies"]
