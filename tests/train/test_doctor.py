"""What the doctor says of a machine: found facts go in, one line each comes out."""

import subprocess
from dataclasses import replace

import pytest

from spnb.train import doctor
from spnb.train.doctor import PACKAGES, Card, Machine, checks, look, missing, report, visible_cards

GOOD = Machine(
    cards=(Card("NVIDIA L4", 24.1, 8.9),) * 2,
    driver="580.65.06",
    usable=True,
    compiler="/usr/bin/gcc",
    header="/usr/include/python3.11/Python.h",
    memory=64.0,
    disk=200.0,
    versions=dict.fromkeys(PACKAGES, "1.0"),
)


def test_a_machine_with_everything_is_ready_and_each_line_says_for_what():
    assert missing("gpu", GOOD) == []
    text = report(GOOD)
    assert "scale gpu: ready" in text and "cores" in text
    (line,) = [line for line in text.splitlines() if "compute capability" in line]
    assert line.split() == ["compute", "capability", "8.9", "ok", "(gpu,", "paper)"]
    assert "2 x NVIDIA L4, 24 GB" in text
    assert [check.name for check in checks(GOOD, "cpu")] == ["packages", "memory", "free disk"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"driver": ""}, "NVIDIA driver: 580 or later (CUDA 13)"),
        ({"driver": "550.54.14"}, "NVIDIA driver: 580 or later (CUDA 13)"),
        ({"cards": (), "usable": False}, "GPUs: an NVIDIA GPU that torch can use"),
        ({"usable": False}, "GPUs: an NVIDIA GPU that torch can use"),
        ({"cards": (Card("T4", 16, 7.5),)}, "compute capability: bfloat16, which needs 8.0"),
        ({"cards": (Card("T4", 16, 8.6),)}, "GPUs: 24 GB a GPU (CUDA_VISIBLE_DEVICES cho"),
        ({"compiler": ""}, "C compiler: gcc, which Triton needs"),
        ({"header": ""}, "Python.h: python3-dev, which Triton needs"),
        ({"disk": 20.0}, "free disk: 30 GB for packages"),
        ({"memory": 8.0}, "memory: 16 GB"),
        ({"versions": dict(GOOD.versions, vllm=None)}, "packages: vllm (`make lab GPU=1`"),
    ],
)
def test_what_a_machine_lacks_is_named_for_the_scales_that_need_it(change, line):
    machine = replace(GOOD, **change)
    assert any(found.startswith(line) for found in missing("gpu", machine))
    assert missing("cpu", machine) == []
    assert "scale cpu: ready" in report(machine) and "scale gpu: missing" in report(machine)


def test_nvidia_smi_is_read_and_does_without(monkeypatch):
    listed = "NVIDIA A100-SXM4-40GB, 40960, 8.0, 580.65.06\n" * 2

    def smi(command, **options):
        return subprocess.CompletedProcess(command, 0, listed, "")

    monkeypatch.setattr(doctor.subprocess, "run", smi)
    machine = look()
    assert machine.cards == (Card("NVIDIA A100-SXM4-40GB", 40960 * 2**20 / 1e9, 8.0),) * 2
    assert machine.driver == "580.65.06" and machine.disk > 0 and machine.memory > 0
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_cards() == ["0", "1"]
    listed = "RTX 4090, 24564, 8.9, 580.65.06\nT1000, 4096, 7.5, 580.65.06\n"
    assert len(look().cards) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert [card.name for card in look().cards] == ["RTX 4090"], "the one that runs are to have"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    listed = "[N/A], [N/A], [N/A]\n"
    assert look().cards == () and visible_cards() == []


@pytest.mark.parametrize(
    ("named", "cards"),
    [("2,3", ["2", "3"]), ("", []), ("-1", []), ("1,-1,0", ["1"]), ("GPU-1a, GPU-2", None)],
)
def test_the_gpus_that_are_named_visible_are_the_only_ones(monkeypatch, named, cards):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_cards() == (["GPU-1a", "GPU-2"] if cards is None else cards)
