"""examples/questions.ipynb runs, and what is committed of it is compact."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.running import ROOT

NOTEBOOK = ROOT / "examples" / "questions.ipynb"
MAX_BYTES = 200_000


def code_cells(notebook):
    return {cell["id"]: cell for cell in notebook["cells"] if cell["cell_type"] == "code"}


def test_the_committed_notebook_was_run_and_is_compact():
    cells = code_cells(json.loads(NOTEBOOK.read_text()))
    assert [cell["execution_count"] for cell in cells.values()] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells.values() for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" for output in outputs)
    assert "image/png" in cells["questions"]["outputs"][0]["data"]
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    assert str(Path.home()) not in NOTEBOOK.read_text()


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=1800, kernel_name="python3").execute()
    cells = code_cells(notebook)
    assert "updates of the agent" in cells["train"]["outputs"][0]["text"]
    assert "image/png" in cells["questions"]["outputs"][0]["data"]
    assert "horizon: median" in cells["discounts"]["outputs"][0]["text"]
