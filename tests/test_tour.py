"""The notebook for those who begin there runs from its first cell to its last, workers included."""

import shutil

import pytest
from conftest import ROOT


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own parts
def test_the_notebook_runs_from_beginning_to_end(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = shutil.copy(ROOT / "examples" / "tour.ipynb", tmp_path)
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert "of 500 test images are right" in shown[-1]["text"]
    assert (tmp_path / "tour.pt2").is_file()
    assert not any("Traceback" in output.get("text", "") for output in shown)


def test_the_notebook_is_stored_without_outputs():
    import json

    cells = json.loads((ROOT / "examples" / "tour.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)
