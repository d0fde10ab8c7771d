"""The exhibit speed/engine: how fast this machine generates and trains, beside the libraries."""

import pandas as pd

from spnb.report.exhibits import save_exhibit

WORK = {"generate": "generate", "train": "training step"}
BAR = {"generate": "at least {:g}", "train": "at most {:g}"}
TEXTS = {
    "caption": "CPU seconds of the torch engine and of a training step beside the libraries' own.",
    "protocol": "No paper has this table. One thread, medians of 7 in turns; 32 prompts, 8 answers "
    "each. Theirs: transformers' generate (its time scaled to our number of tokens), TRL's "
    "step. Ratio: their time over ours in generation, ours over theirs in training.",
}


def save_speed(figures: str) -> str:
    """Runs the bench, saves its exhibit below `figures`; returns the table and the files' paths."""
    from spnb.train.bench import bench

    rows = bench()
    table = pd.DataFrame({"model (weights)": rows["weights"], "what": rows["work"].map(WORK)})
    for side in ("ours", "theirs"):
        table[side] = rows[f"{side}_seconds"].map("{:.3g} s".format)
    table["ratio"] = rows["ratio"].round(2)
    table["bar"] = [BAR[row.work].format(row.bar) for row in rows.itertuples()]
    table["share of GEMM rate"] = rows["gemm_share"].round(3)
    files = save_exhibit("speed/engine", table, [], folder=figures, **TEXTS)
    return "\n".join([table.to_string(index=False), *map(str, files)])
