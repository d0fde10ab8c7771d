"""Executes a paper's notebook at smoke scale: python -m tools.campaign.notebook FOLDER."""

import sys
from pathlib import Path

PAPER, VARIANT = "rlvr", "think"

if __name__ == "__main__":
    from spnb.report import notebooks

    folder = Path(sys.argv[1])
    notebooks.resolve = lambda path: folder / path  # the executed copy, the times
    inside = {"runs": str(folder / "runs"), "figures": str(folder / "figures")}
    notebooks.execute(PAPER, "smoke", variants=[VARIANT], seeds=[0], **inside)
