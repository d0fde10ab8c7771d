"""What a maker of an exhibit hands over to be saved."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from spnb.train.runs import Run


class Made(NamedTuple):
    """A table, or a figure and its numbers; the runs it is from; {name} in the protocol is theirs."""

    item: pd.DataFrame | Figure
    runs: Sequence[Run]
    caption: str
    protocol: str
    data: pd.DataFrame | None = None
