"""The SPIRAL notebook in JupyterLab, in a real Chromium: every cell runs, the live figure and the
progress bar stay in place, tables fit, and a corrected parameter needs no restart."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import nbformat
import pytest

from spnb.core.paths import ROOT

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine (see .ci/run)"),
]
MINUTES = 8
"""The longest that the notebook may take at smoke scale, on a busy machine."""
PATIENCE = 120_000
"""The longest that JupyterLab may take for anything else, in milliseconds."""
SETTINGS = {
    "notebook-extension/tracker": '{"windowingMode": "none", "autoStartDefaultKernel": true}',
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
}
"""Every cell stands in the page, also those out of sight; no question is asked."""
FEWER = {"eval_matches": 2, "eval_questions": 2, "eval_samples": 1, "eval_games": []}
"""Measurements of a run at smoke scale; what its exhibits show is tested elsewhere."""
RED = '.jp-OutputArea-output:is([data-mime-type$=".error"], [data-mime-type$=".stderr"])'
"""What JupyterLab shows on red ground: errors and logs."""
PROMPTS = """() => [...document.querySelectorAll(".jp-CodeCell .jp-InputArea-prompt")]
  .map(prompt => prompt.innerText.trim())"""
TRAINING = """number => {
  const cell = document.querySelectorAll(".jp-CodeCell")[number];
  const bars = cell.querySelectorAll("progress, .widget-hprogress, [role=progressbar]").length;
  const lines = cell.querySelector(".jp-OutputArea")?.innerText.match(/\\d+%\\|/g) ?? [];
  const pictures = [...cell.querySelectorAll(".jp-OutputArea img")].map(image => image.src);
  return {bars: bars + lines.length, pictures: pictures};
}"""
TABLES = """() => [...document.querySelectorAll(".jp-OutputArea-output table")].map(table => ({
  rows: table.rows.length,
  text: table.innerText,
  cut: table.getBoundingClientRect().right
    - table.closest(".jp-OutputArea-output").getBoundingClientRect().right,
}))"""


class Lab:
    """A JupyterLab on a free port with its own settings, and a browser in front of it."""

    def __init__(self, folder, browser):
        self.folder, self.browser = folder, browser
        self.token = secrets.token_hex()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        for name, content in SETTINGS.items():
            path = folder / f"settings/@jupyterlab/{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self.root = folder / "notebooks"
        self.root.mkdir()
        self.process = self._start()

    def _start(self):
        port = self.url.rsplit(":")[-1]
        options = {
            "ServerApp.port": port,
            "ServerApp.port_retries": 0,
            "ServerApp.allow_root": True,
            "KernelManager.shutdown_wait_time": 0.5,
            "ServerApp.root_dir": self.root,
            "IdentityProvider.token": self.token,
            "LabApp.user_settings_dir": self.folder / "settings",
            "LabApp.workspaces_dir": self.folder / "workspaces",
        }
        own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        environment = os.environ | {name: str(self.folder / name.lower()) for name in own}
        command = [sys.executable, "-m", "jupyter", "lab", "--no-browser"]
        command += [f"--{name}={value}" for name, value in options.items()]
        with open(self.folder / "log.txt", "w") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def wait_until_up(self):
        """Waits until the server answers; fails with its log where it does not."""
        for _ in range(PATIENCE // 500):
            with suppress(OSError):
                return urllib.request.urlopen(f"{self.url}/api?token={self.token}", timeout=5)
            if self.process.poll() is not None:
                break
            time.sleep(0.5)
        pytest.fail(f"JupyterLab did not start:\n{(self.folder / 'log.txt').read_text()[-2000:]}")

    def open(self, name):
        """The page of a notebook whose kernel is ready."""
        page = self.browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{self.url}/lab/workspaces/{name}/tree/{name}.ipynb?token={self.token}")
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        return page


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The running JupyterLab; stopped afterwards together with its kernels."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        lab = Lab(tmp_path_factory.mktemp("lab"), browser)
        try:
            lab.wait_until_up()
            yield lab
        finally:
            browser.close()
            lab.process.terminate()
            try:
                lab.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                lab.process.kill()


def spiral(lab, name, last=""):
    """A copy of the SPIRAL notebook at smoke scale, with folders of its own; its code cells.

    `last`: what stands in the last cell that is copied, all where it is empty.
    """
    notebook = nbformat.read(ROOT / "notebooks/04_spiral.ipynb", as_version=4)
    ends = (i for i, cell in enumerate(notebook.cells, 1) if last and last in cell.source)
    notebook.cells = notebook.cells[: next(ends, None)]
    given = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    folders = {key: str(lab.folder / name / key) for key in ("runs", "figures")}
    given.source += f'\nscale = "smoke"\nrun = {FEWER | folders!r}'
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, lab.root / f"{name}.ipynb")
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def menu(page, name, entry):
    """Clicks an entry of a menu of JupyterLab."""
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{name}$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}$")).click()


def run_all(page, look=lambda: None):
    """Runs all cells, and calls `look` every half second until nothing is left to run."""
    menu(page, "Run", "Run All Cells")
    page.wait_for_function(f"({PROMPTS})().includes('[*]:')")
    stop = time.monotonic() + 60 * MINUTES
    while "[*]:" in page.evaluate(PROMPTS):
        assert time.monotonic() < stop, f"not finished in {MINUTES} minutes"
        look()
        page.wait_for_timeout(500)


def saved(lab, page, name):
    """The code cells of the notebook file after saving it in JupyterLab."""
    path = lab.root / f"{name}.ipynb"
    before = path.stat().st_mtime_ns
    menu(page, "File", "Save Notebook")
    for _ in range(PATIENCE // 500):
        if path.stat().st_mtime_ns != before:
            break
        page.wait_for_timeout(500)
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def write(page, number, text):
    """Replaces the text of a code cell by typing, and runs that cell."""
    page.locator(".jp-CodeCell").nth(number).locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    run(page, number)


def run(page, number):
    """Runs a code cell and waits for its end."""
    cell = page.locator(".jp-CodeCell").nth(number)
    before = cell.locator(".jp-InputArea-prompt").inner_text()
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    done = f"([number, before]) => ![before, '[*]:'].includes(({PROMPTS})()[number])"
    page.wait_for_function(done, arg=[number, before])


def test_a_misspelt_parameter_is_one_line_and_is_corrected_without_a_restart(lab):
    cells = spiral(lab, "misspelt", last="make_plan(")
    page = lab.open("misspelt")
    run_all(page)
    assert page.locator(RED).all_inner_texts() == []
    number = next(i for i, c in enumerate(cells) if "parameters" in c.metadata.get("tags", []))
    plan = len(cells) - 1
    write(page, number, cells[number].source + '\nrun["lerning_rate"] = 1e-3')
    run(page, plan)
    lines = page.locator(RED).inner_text().strip().splitlines()
    assert len(lines) == 1 and "parameter is 'lerning_rate', which is unknown" in lines[0], lines
    write(page, number, cells[number].source + '\nrun["steps"] = 1')
    run(page, plan)
    assert page.locator(RED).all_inner_texts() == []
    header, *rows = [row.split("\t") for row in page.evaluate(TABLES)[-1]["text"].splitlines()]
    assert [row[header.index("steps")] for row in rows] == ["1", "1"]
    page.close()


def test_spiral_runs_whole_with_a_live_figure_and_one_bar(lab):
    cells = spiral(lab, "spiral")
    training = next(i for i, cell in enumerate(cells) if "run_all(" in cell.source)
    page = lab.open("spiral")
    seen = []
    run_all(page, lambda: seen.append(page.evaluate(TRAINING, training)))
    seen.append(page.evaluate(TRAINING, training))
    assert page.locator(RED).all_inner_texts() == []
    drawn = [look["pictures"] for look in seen if look["pictures"]]
    assert {len(pictures) for pictures in drawn} == {1}, "the live figure is drawn in its place"
    assert len({pictures[0] for pictures in drawn}) >= 2, "the live figure moves"
    assert seen[-1]["pictures"], "the live figure stays"
    assert max(look["bars"] for look in seen) == 1 and seen[-1]["bars"] == 1, (
        "one bar, in one piece"
    )
    tables = page.evaluate(TABLES)
    assert [table["text"][:80] for table in tables if table["cut"] > 1] == [], "cut on the right"
    kept = saved(lab, page, "spiral")
    assert all(cell.execution_count for cell in kept)
    outputs = [output for cell in kept for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    html = [
        o.data["text/html"] for o in outputs if "<table" in o.get("data", {}).get("text/html", "")
    ]
    rows = [part.count("<tr") for page in html for part in page.split("</table>")[:-1]]
    assert [table["rows"] for table in tables] == rows, "those that are folded too"
    page.close()
