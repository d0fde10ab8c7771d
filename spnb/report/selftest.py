"""`spnb selftest --gpu`: what tests on a CPU cannot see of the GPU path, in about 45 minutes.

Each part (`spnb.report.gpu_parts`) is a process of its own with a time limit, and is passed, failed
or left out, with the reason. Without a GPU the parts run with a random model on the CPU, as far as
they can.
"""

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from spnb.core.disk import write_json
from spnb.core.params import require
from spnb.core.paths import resolve
from spnb.lab.tiny import tiny_qwen
from spnb.report.gpu_bench import LEFT_OUT, Bench, LeftOut, Result
from spnb.report.gpu_parts import PARTS, Part
from spnb.train import provenance
from spnb.train.cards import shape_of
from spnb.train.doctor import look, visible_cards
from spnb.train.plan import make_plan
from spnb.train.policies import PolicyError, check_policies

MODEL = "Qwen/Qwen3-0.6B"
"""On a GPU; where the hub does not answer, random weights of its shape."""


def selftest(
    names: Sequence[str] = (), gpu: bool = False, out: Path | None = None, **values: Any
) -> list[Result]:
    """Runs parts one after another, all where none is named; prints and writes their verdicts.

    Args:
        gpu: on the GPU if there is one.
        out: where `selftest.md` and `selftest.json` go. Default: figures/gpu after a run on a GPU,
            else runs/selftest.
        values: parameters of all runs, such as `engine="torch", backend="transformers"`.

    Raises:
        ParamError: there is no such part, or a wrong parameter.
    """
    for name in names:
        require("part", name, PARTS)
    make_plan("spiral", "gpu" if gpu else "smoke", **values)
    seen = look()
    on_gpu = gpu and seen.usable
    home = resolve("runs/selftest") / datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    home.mkdir(parents=True)
    policy = choose_policy(on_gpu, home)
    where = f"{seen.cards[0].name}, driver {seen.driver}" if on_gpu else "CPU alone, random model"
    where += "".join(f", {key}={value}" for key, value in values.items())
    minutes = sum(PARTS[name][0] for name in names or PARTS)
    print(f"{where}; {policy}; at most {minutes:.0f} minutes")
    results = []
    target = resolve(out) if out else resolve("figures/gpu") if on_gpu else home
    for name in names or PARTS:
        results.append(run_part(name, PARTS[name], Bench(home / name, policy, on_gpu, values)))
        print(line(results[-1]), flush=True)
        write(target, where, results)
    print(f"written: {target / 'selftest.md'}, {target / 'selftest.json'}")
    return results


def choose_policy(gpu: bool, home: Path) -> str:
    """`MODEL` on a GPU, random weights of its shape where it is not in reach, of two layers on a
    CPU."""
    if not gpu:
        return tiny_qwen(home / "policy")
    try:
        check_policies([MODEL])
    except PolicyError:
        shape = asdict(shape_of(MODEL))
        return tiny_qwen(home / "policy", **{k: v for k, v in shape.items() if k != "model_type"})
    return MODEL


def run_part(name: str, part: Part, bench: Bench) -> Result:
    """A part in a process of its own, which is ended with all that it has started at its limit."""
    bench.folder.mkdir(parents=True)
    file = bench.folder / "result.json"
    minutes, check = part
    started = time.perf_counter()
    process = get_context("spawn").Process(target=_child, args=(name, check, bench, file))
    process.start()
    try:
        process.join(60 * minutes)
        over = process.is_alive()
    finally:  # after Ctrl-C too
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # where it had no group yet
        process.join()
    if over:
        result = Result(name, why=f"over its limit of {minutes:g} minutes, and was ended")
    elif file.is_file():
        result = Result(**json.loads(file.read_text()))
    else:
        result = Result(name, why=f"exit code {process.exitcode}; see {bench.folder / 'part.log'}")
    result.seconds = round(time.perf_counter() - started, 1)
    result.date = datetime.now(UTC).isoformat(timespec="seconds")
    return result


def _child(name: str, check: Callable[[Bench, Result], None], bench: Bench, file: Path) -> None:
    os.setsid()
    log = os.open(bench.folder / "part.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_cards()[0] if bench.gpu else ""
    result = Result(name)
    try:
        check(bench, result)
        result.judge()
    except LeftOut as reason:
        result.verdict, result.why = LEFT_OUT, str(reason)
    except Exception as error:
        traceback.print_exc()
        result.why = f"{type(error).__name__}: {error}".splitlines()[0]
    write_json(file, asdict(result))


def line(result: Result) -> str:
    """A part's verdict, seconds, and why where it did not pass."""
    return f"{result.part:8} {result.verdict:8} {result.seconds:6.1f} s  {result.why}".rstrip()


def write(folder: Path, where: str, results: Sequence[Result]) -> None:
    """`selftest.json` and `selftest.md`: verdicts, numbers, bars. Parts that an earlier call at the
    same commit on the same machine has left there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "selftest.json"
    earlier = json.loads(file.read_text()) if file.is_file() else {}
    about = {"where": where, "commit": provenance.commit(), "versions": provenance.versions()}
    kept = earlier["parts"] if all(earlier.get(key) == about[key] for key in about) else []
    parts = {one["part"]: Result(**one) for one in kept} | {one.part: one for one in results}
    write_json(file, about | {"parts": [asdict(one) for one in parts.values()]})
    lines = ["# `spnb selftest --gpu`", "", f"{where}.", ""]
    lines += ["| part | verdict | seconds | date | |", "| --- | --- | ---: | --- | --- |"]
    for one in parts.values():
        row = (one.part, one.verdict, f"{one.seconds:.0f}", one.date, one.why)
        lines.append(f"| {' | '.join(row)} |")
    for one in parts.values():
        lines += ["", f"## {one.part}", ""] if one.numbers or one.bars else []
        lines += [f"- {name}: {_short(value)}" for name, value in one.numbers.items()]
        lines += [f"- {'held' if held else 'broken'}: {text}" for text, held in one.bars.items()]
    (folder / "selftest.md").write_text("\n".join(lines) + "\n")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
