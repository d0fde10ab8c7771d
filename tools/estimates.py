"""What the headline runs of the gpu and paper files take, by the estimates of `spnb plan --memory`.

    python -m tools.estimates    # writes the table of RESULTS.md

Nothing of it was measured: sizes follow from shapes, speeds are those of `spnb/train/cards.yaml`.
"""

from collections import Counter
from collections.abc import Mapping

from spnb.core.params import papers
from spnb.core.paths import ROOT
from spnb.train.cards import data, fits, hours, need
from spnb.train.config import RunParams
from spnb.train.plan import make_plan
from tools.sizes import with_table

SCALES = ("gpu", "paper")
TOGETHER = 8
"""Processes that share out a run of paper scale with DeepSpeed ZeRO-2."""
MARKERS = ("<!-- estimates -->", "<!-- end of estimates -->")
RESULTS = ROOT / "RESULTS.md"


def table() -> str:
    """A row a variant of each file's headline, in Markdown."""
    rows = [
        "| file | variant | runs | hours each: answers, updates, evaluations | H100-hours of all "
        "| GB at the peak, one card | of each of eight |",
        "| --- | --- | ---: | --- | ---: | --- | --- |",
    ]
    for scale in SCALES:
        for paper in papers():
            rows += lines(f"{paper}/{scale}", make_plan(paper, scale).runs)
    return "\n".join(rows)


def lines(name: str, runs: Mapping[tuple[str, int], RunParams]) -> list[str]:
    """The variants of a plan."""
    seeds = Counter(variant for variant, _ in runs)
    rows = []
    for variant, params in {params.variant: params for params in runs.values()}.items():
        took = hours(params)
        parts = ", ".join(f"{took[part]:.1f}" for part in ("answers", "updates", "evaluations"))
        whole = f"{seeds[variant] * took['all']:.1f}"
        alone = on_cards(params, 1)
        shared = "-" if params.backend == "unsloth" else on_cards(params, TOGETHER)
        cells = (name, f"`{variant}`", seeds[variant], parts, whole, alone, shared)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def on_cards(params: RunParams, count: int) -> str:
    """GB on the smallest of the cards that a run fits with so many processes."""
    cards = [card for card in data()["cards"] if fits(params, card, count)]
    if not cards:
        return f"fits none ({need(params, data()['cards'][-1], count):.0f})"
    return f"{need(params, cards[0], count):.0f} of {cards[0]}"


if __name__ == "__main__":
    RESULTS.write_text(with_table(RESULTS.read_text(), table(), MARKERS))
    print(table())
