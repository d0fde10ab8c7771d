"""A paper's tables as data: which run is which row, and what is measured in which column.

`reference/<paper>/tables.yaml` lists measures by name, and the tables that are made of them. A
table has the paper's shape, a line a model and a column a benchmark; a cell is ours with the
paper's number behind it. It needs all of its variants that the scale has: a plan without them
leaves an earlier table as it is. A user's own variant is a further row, under its name, and what
was not run beside it a dash. So are benchmarks that runs measured, each a further column.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator, Field, model_validator

from spnb import reference
from spnb.core.params import StrictData, require, validate, variants, variants_at
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import (
    Frames,
    Interval,
    Labels,
    Measure,
    benchmarks_of,
    format_interval,
    load_measures,
    measures_of,
    pick,
    plain,
    read_yaml,
    rows_nearest_step,
    within,
)
from spnb.train.plan import Plan, make_plan
from spnb.train.runs import Run

FORFEITED = 90.0
"""From this per cent of matches ended by an invalid answer on, a score says nothing of play."""
CEILING = 99.0
"""What is right before and after training from this per cent on cannot rise."""
AT_CHANCE = 5.0
"""Points from chance, before and after training, within which a kind of question is guessed."""
ENDS = {"start": 0, "end": 1}
At = Annotated[float, BeforeValidator(lambda at: ENDS.get(at, at)), Field(ge=0, le=1)]


class Row(StrictData):
    """One of our rows, and the printed row whose numbers stand behind its own."""

    name: str = Field("", description="left out: the evaluated step, with one line for each")
    paper: str = Field("", description="the printed row; left out: the paper has none")
    run: tuple[str, At] | None = Field(None, description="variant, share of training; none: code")


class Column(StrictData):
    """One of our columns, and the printed columns whose numbers stand behind its own."""

    name: str
    measure: Measure | None = None
    says: str = Field("", description="words instead: a parameter of the runs; about: the change")
    paper: Labels = Field([], description="printed columns; left out: the paper has none")
    variant: str = Field("", description="measured on this one instead of the row's")
    minus: str = Field("", description="the difference to this variant at the end, paired by seed")
    half: bool = Field(False, description="half of a difference's interval instead of it")
    chance: float | None = Field(None, description="what guessing gets; no number at it or at 100")
    digits: int = 1

    @model_validator(mode="after")
    def _content(self) -> "Column":
        if (self.measure is None) != bool(self.says):
            raise ValueError(f"column {self.name} has measure and says, or none; allowed: one")
        if self.half and not (self.minus or self.measure and self.measure.change != "none"):
            reason = f"half is true without minus or a change in column {self.name}"
            raise ValueError(f"{reason}; allowed: with one")
        return self

    def cell(self, frames: Frames, variant: str, share: float) -> tuple[str, int]:
        """Text and number of seeds of a variant at a share of its training.

        "-" where it was not measured at the evaluation nearest to that share, for a change at the
        start, and a dash with its reason where the number says nothing.
        """
        variant = self.variant or variant
        if self.measure is None:
            return self._words(frames.only([variant]).runs), 0
        if self.minus:
            return self._difference(frames, variant, share)
        if share == 0 and self.measure.change != "none":
            return "-", 0
        frames = frames.only([variant])
        values = self.measure.of_runs(frames, share)
        step, _ = evaluated(frames, share)
        inside = (values["first"] <= step) & (step <= values["last"])
        if values.empty or self.measure.source == "evals" and not inside.all():
            return "-", 0
        interval = self.measure.interval(frames, variant, share)
        return self._reason(frames, share) or self.shown(interval), interval[3]

    def _words(self, runs: Sequence[Run]) -> str:
        """A cell of a column of words; values that differ are joined by "or"."""
        if self.says == "about":
            said = [variants(run.paper)[run.variant].get("about", "") for run in runs]
        else:
            said = [f"{run.params[self.says]}" for run in runs]
        return " or ".join(dict.fromkeys(said)) or "-"

    def _difference(self, frames: Frames, variant: str, share: float) -> tuple[str, int]:
        """A cell of a column of differences, "-" before the end and for what is subtracted."""
        if variant == self.minus or share < 1:
            return "-", 0
        interval = self.measure.difference(frames, variant, self.minus)
        shown = interval if self.half else within(interval, self.measure.reach())
        return self.shown(shown), interval[3]

    def shown(self, interval: Interval) -> str:
        """A number of this column with its interval; of a `half` one the smallest difference that
        the seeds could show."""
        _, low, high, n = interval
        if self.half:
            return f"{(high - low) / 2:.{self.digits}f}" if n > 1 else "-"
        return format_interval(*interval[:3], self.digits)

    def _reason(self, frames: Frames, share: float) -> str:
        """The dash with its reason, or ""."""
        if "win" in self.measure.weights:
            ended = self.measure.model_copy(update={"weights": {"invalid": 100}})
            return forfeited(ended.of_runs(frames, share)["value"].mean())
        if self.chance is None:
            return ""
        ends = [self.measure.of_runs(frames, at)["value"].mean() for at in (0, 1)]
        if min(ends) >= CEILING:
            return "- (ceiling)"
        if max(abs(value - self.chance) for value in ends) <= AT_CHANCE:
            return f"- (chance {self.chance:g} %)"
        return ""


class Table(StrictData):
    """One table: our rows and columns; those that only the paper has are added in its order."""

    printed: Labels = Field(description="the exhibits whose numbers stand behind ours")
    caption: str
    protocol: str
    rows: list[Row]
    columns: list[Column]
    turned: bool = Field(False, description="whether the printed table has its models as columns")
    least: int = Field(0, description="so many of its variants are enough; left out: all")
    absent: dict[str, str] = Field({}, description="why printed rows have no run; * is anything")

    @model_validator(mode="after")
    def _steps(self) -> "Table":
        of = {row.run[0] if row.run else "no run" for row in self.rows if not row.name}
        if len(of) > 1 or "no run" in of:
            raise ValueError(
                f"rows without name are of {sorted(of)}; allowed: steps of one variant"
            )
        return self

    @property
    def variants(self) -> list[str]:
        """The variants whose runs it takes."""
        rows = (row.run[0] for row in self.rows if row.run)
        columns = [name for each in self.columns for name in (each.variant, each.minus) if name]
        return list(dict.fromkeys([*rows, *columns]))

    def there(self, frames: Frames) -> list[str]:
        """Its variants, but for those that the scale of these runs does not have."""
        known = [variants_at(run.paper, run.scale) for run in frames.runs[:1]]
        return [name for name in self.variants if not known or name in known[0]]

    def content(self, frames: Frames, more: Sequence[pd.DataFrame] = ()) -> ExhibitContent | None:
        """The exhibit of these runs; None where they lack its variants and have none of one's own
        to show."""
        if not self.shows(frames):
            return None
        used = frames.with_own(self.variants)
        table = self.with_benchmarks(used).fill(used, more)
        return ExhibitContent(table, used.runs, None, self.caption, self.protocol)

    def shows(self, frames: Frames) -> bool:
        """Whether these runs have its variants, or some of one's own that it can show."""
        if self.least:
            return len(frames.with_own(self.variants).variants) >= self.least
        needed = {*self.there(frames)}
        return bool(needed and needed <= {*frames.variants} or self.own_cells(frames))

    def with_benchmarks(self, frames: Frames) -> "Table":
        """The table with a column for each benchmark that these runs measured and the paper's table
        has; that number then stands behind no other column."""
        printed = printed_table(self.printed)
        labels = {plain(label): label for label in (printed.index if self.turned else printed)}
        measured = {labels.get(plain(name)): each for name, each in benchmarks_of(frames).items()}
        measured.pop(None, None)
        columns = [
            each.model_copy(update={"paper": [one for one in each.paper if one not in measured]})
            for each in self.columns
        ]
        columns += [Column(name=one, measure=each, paper=one) for one, each in measured.items()]
        return self.model_copy(update={"columns": columns})

    def own_cells(self, frames: Frames) -> list[tuple[str, str, str, int]]:
        """Cells of a user's own variants after training, as `fill` has them; of those that have a
        number. None in a table of one variant's steps."""
        cells = []
        for name in frames.own if self.rows[0].name else []:
            columns = [each for each in self.columns if not each.variant]
            row = [(name, each.name, *each.cell(frames, name, 1)) for each in columns]
            cells += row if any(n for *_, n in row) else []
        return cells

    def fill(self, frames: Frames, more: Sequence[pd.DataFrame] = ()) -> pd.DataFrame:
        """The table as `beside_paper` shows it; `more`: further cells, columns as there."""
        cells = self.own_cells(frames)
        own = {name: [] for name, *_ in cells}
        lines = {}
        there = frames.variants if self.least else self.there(frames)
        for row in self.rows:
            name = row.name
            at = row.run
            if at and at[0] not in there:
                continue
            columns = self.columns
            if row.run and not row.name:
                step, last = evaluated(frames.only([row.run[0]]), row.run[1])
                name = f"step {step}"
                at = (row.run[0], step / last)
            elif at and at[1] == 0:  # what was logged came after the start
                columns = [c for c in columns if not c.measure or c.measure.source == "evals"]
            if at and name not in lines:
                cells += [(name, each.name, *each.cell(frames, *at)) for each in columns]
            lines.setdefault(name, []).append(row.paper)
        lines |= own
        ours = pd.DataFrame(cells, columns=["row", "column", "text", "n"])
        printed = printed_table(self.printed)
        rows = {name: [label for label in labels if label] for name, labels in lines.items()}
        heads = {each.name: each.paper for each in self.columns}
        printed = printed.T if self.turned else printed
        return beside_paper(pd.concat([ours, *more]), printed, rows, heads, self.absent)


class CustomExhibit(StrictData):
    """An exhibit that code makes: its texts, and the variants that it takes."""

    caption: str
    protocol: str
    variants: list[str]
    title: str = Field("", description="of a figure")
    note: str = Field("", description="of a figure, in small type")
    words: dict[str, Any] = Field({}, description="what its code writes, by name")


def seeds_table(plan: Any, frames: Frames) -> ExhibitContent | None:
    """Every measure of the paper's tables, figures and claims, seed by seed, before and after
    training: columns measure, variant, seed, start, end; None without runs."""
    if not frames.runs:
        return None
    paper = frames.runs[0].paper
    lines = []
    measures = load_measures(paper) | benchmarks_of(frames)
    of = [frames.only([variant]) for variant in frames.variants]
    for name, own in product(measures, of):
        measure = measures[name]
        ends = {"start": 0, "end": 1} if measure.change == "none" else {"end": 1}
        both = [
            measure.of_runs(own, share).set_index(["variant", "seed"])["value"].rename(at)
            for at, share in ends.items()
        ]
        table = pd.concat(both, axis=1).reindex(columns=["start", "end"])
        lines.append(table.reset_index().assign(measure=name))
    table = pd.concat(lines, ignore_index=True).dropna(how="all", subset=["start", "end"])
    table = table.astype({"start": float, "end": float}).round({"start": 3, "end": 3})
    caption = (
        "Each measure of each run of these variants: claims can be computed again without runs."
    )
    protocol = (
        "A change is from the start to the end, one in per cent the end in per cent of the start; "
        "suites and weights are those of tables.yaml and claims.yaml. A row a measure, variant and "
        "seed, also where a share of the training is another iteration of this variant."
    )
    columns = ["measure", "variant", "seed", "start", "end"]
    return ExhibitContent(table[columns], frames.runs, None, caption, protocol)


def load_own(paper: str) -> dict[str, CustomExhibit]:
    """The exhibits of a paper that code makes, by id."""
    entries = read_yaml(paper, "tables.yaml").get("own", {})
    return {name: validate(CustomExhibit, each, f"{name}: ") for name, each in entries.items()}


def load_tables(paper: str) -> dict[str, Table]:
    """The tables of a paper that are data, by exhibit."""
    content = read_yaml(paper, "tables.yaml")
    entries = content.get("tables", {})
    return {name: table_of(name, each, measures_of(content)) for name, each in entries.items()}


def table_of(exhibit: str, values: Mapping[str, Any], measures: Mapping[str, Measure]) -> Table:
    """A table from its entry in the file; a column without a name has its measure's."""
    where = f"{exhibit}: "
    columns = []
    for column in values["columns"]:
        name = column.get("measure")
        measure = {"measure": pick(measures, name, where)} if name else {}
        columns.append({"name": name, **column, **measure})
    return validate(Table, {"printed": exhibit, **values, "columns": columns}, where)


def settings_table(plan: Plan, frames: Frames) -> ExhibitContent:
    """The paper's settings beside ours at the plan's scale: `settings` of its `tables.yaml`.

    A cell is ours with the paper's behind it, "8 (paper 8)", or they stand in columns of their own
    (`apart`).
    """
    entry = read_yaml(plan.paper, "tables.yaml")["settings"]
    printed = printed_table(entry["exhibit"])

    def params(variant: str) -> dict[str, Any]:
        there = variant in plan.variants
        own = plan if there else make_plan(plan.paper, plan.scale, variants=[variant])
        return own.params(variant).model_dump()

    named = {variant: params(variant) for variant in entry.get("variants", [])}
    table: dict[str, list[str]] = {}
    for place, (title, (variant, column)) in enumerate(entry["columns"].items()):
        values = params(variant or plan.variants[0]) | named
        numbers = printed[column] if column else pd.Series(dtype=float)
        pairs = [setting(row, place, numbers, values) for row in entry["rows"]]
        if entry.get("apart"):
            table["paper"] = [paper for paper, _ in pairs]
            table[title] = [here for _, here in pairs]
        else:
            table[title] = [h if p == "-" else f"{h} (paper {p})" for p, h in pairs]
    names = [row.get("name") or row["printed"] for row in entry["rows"]]
    index = pd.Index(names, name=entry.get("setting", "setting"))
    return ExhibitContent(pd.DataFrame(table, index=index), [])


def setting(
    row: Mapping[str, Any], place: int, printed: pd.Series, values: Mapping[str, Any]
) -> tuple[str, str]:
    """The paper's and our side of a line of `settings`, "-" where one has nothing.

    Args:
        place: which of the columns.
        printed: the column of the printed table.
        values: the parameters of its variant.
    """
    labels = row.get("printed", [])
    found = printed[[labels] if isinstance(labels, str) else labels].dropna()
    numbers = "; ".join(map("{:g}".format, found)) or "-"
    paper = row["paper"][place].format(printed=numbers) if "paper" in row else numbers
    return paper, row["here"][place].format(**values)


def fill_placeholders(text: str, runs: Sequence[Run]) -> str:
    """A text with each {name} replaced by that parameter of the runs; values are joined by "or"."""

    def shown(match: re.Match) -> str:
        values = [run.params[match[1]] for run in runs if run.params.get(match[1]) is not None]
        words = [", ".join(map(str, v)) if isinstance(v, list) else f"{v}" for v in values]
        return " or ".join(dict.fromkeys(words))

    return re.sub(r"\{(\w+)\}", shown, text)


def forfeited(percent: float) -> str:
    """The dash with its reason if that per cent of the matches ended by an invalid answer."""
    return f"- (forfeits {percent:.0f} %)" if percent >= FORFEITED else ""


def evaluated(frames: Frames, share: float) -> tuple[int, int]:
    """The evaluated step nearest to a share of the training (of two the first), and the last."""
    steps = frames.results[["step"]].drop_duplicates()
    return rows_nearest_step(steps, share)["step"].min(), steps["step"].max()


def printed_table(exhibits: str | Sequence[str]) -> pd.DataFrame:
    """Printed numbers as `reference.table` gives them; empty where there are none.

    Several exhibits stand side by side: they have the same rows in the same order, under the first
    one's names. A column with the numbers of one of the first exhibit's is left out.
    ValueError where they differ in rows, or in a column of one name.
    """
    first, *others = [exhibits] if isinstance(exhibits, str) else exhibits
    table = _printed(first)
    known = [table[column].tolist() for column in table]
    for other in map(_printed, others):
        if len(other) != len(table):
            raise ValueError(f"{exhibits} have {len(table)} and {len(other)} rows; allowed: equal")
        new = other[[column for column in other if other[column].tolist() not in known]]
        table = pd.concat([table, new.set_axis(table.index)], axis=1, verify_integrity=True)
    return table


def _printed(exhibit_id: str) -> pd.DataFrame:
    paper = exhibit_id.split("/")[0]
    known = reference.load(paper) if paper in reference.sources("numbers.csv") else None
    if known is None or exhibit_id not in set(known["exhibit"]):
        return pd.DataFrame()
    return reference.table(paper, exhibit_id)


Lines = Mapping[str, Sequence[str]]


def beside_paper(
    ours: pd.DataFrame,
    printed: pd.DataFrame,
    rows: Lines,
    columns: Lines,
    absent: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Ours with the paper's numbers: "55.0 [51.2, 58.9] (paper 44.5)", "-" where ours has none.

    Lines and columns stand in the printed order, those that only we have after the one that they
    follow in ours. Columns that only the paper has are named so and hold its numbers alone. The
    last column has the number of seeds, all of them where cells have different ones.

    Args:
        ours: long, a line a cell: row, column, text, n (seeds; 0 where it is not of runs).
        printed: rows by columns, empty if nothing is printed.
        rows, columns: ours by name, with the printed labels beside each.
        absent: why printed rows have no run, by label; * stands for anything.

    Raises:
        ParamError: a label that is not printed.
        ValueError: a cell twice.
    """
    texts = ours.pivot(index="row", columns="column", values="text")
    texts = texts.reindex(index=[*rows], columns=[*columns]).fillna("-").T.to_dict()
    seeds = ours[ours["n"] > 0].groupby("row")["n"].agg(lambda n: sorted(set(n)))
    lines = _in_order("row", rows, list(printed.index))
    heads = _in_order("column", columns, list(printed.columns))
    table: dict[str, list[str]] = {}
    for head, above in heads:
        title = _label(head, above) if head else f"paper only: {above[0]}"
        table[title] = []
        for name, labels in lines:
            values = [printed.at[cell] for cell in product(labels, above)]
            own = texts.get(name, {}).get(head, "-") if head else ""
            table[title].append(_cell(own, values))
    table["seeds"] = [", ".join(map(str, seeds.get(name, ["-"]))) for name, _ in lines]
    index = [_label(name or _reason(absent or {}, *labels), labels) for name, labels in lines]
    return pd.DataFrame(table, index=pd.Index(index, name="policy"))


def _in_order(key: str, ours: Lines, printed: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """(Our name or "", printed labels) of every line that either side has."""
    own = {label: (name, tuple(labels)) for name, labels in ours.items() for label in labels}
    for label in own:
        require(f"printed {key}", label, printed)
    order = list(dict.fromkeys(own.get(label, ("", (label,))) for label in printed))
    place = -1
    for name, labels in ours.items():
        if labels:
            place = order.index((name, tuple(labels)))
        else:
            place += 1
            order.insert(place, (name, ()))
    return order


def _cell(ours: str, paper: Sequence[float]) -> str:
    """Both sides of a cell; `ours` is "" in a column that only the paper has."""
    if pd.Series(paper, dtype=float).isna().all():
        return ours or "-"
    numbers = "; ".join("-" if pd.isna(value) else f"{value:g}" for value in paper)
    return f"{ours} (paper {numbers})" if ours else numbers


def _label(name: str, printed: Sequence[str]) -> str:
    return name if list(printed) in ([], [name]) else f"{name} (paper: {', '.join(printed)})"


def _reason(absent: Mapping[str, str], label: str) -> str:
    """The name of a line that only the paper has."""
    why = (reason for pattern, reason in absent.items() if fnmatchcase(label, pattern))
    return ", ".join(["not run", *list(why)[:1]])
