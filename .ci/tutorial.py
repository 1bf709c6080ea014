"""Execute the tutorial notebook of the documentation, and store or compare what it prints.

    .venv/bin/python .ci/tutorial.py            # `make tutorial`: store the outputs
    .venv/bin/python .ci/tutorial.py --check    # a test: exit code 1 if they are not those stored

It runs in a folder that is removed afterwards. Outputs are stored without execution counts, and
refused where they name a folder of this machine.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
_NUMBER = re.compile(r"-?\d+\.\d+")
_TOLERANCE = 0.1
"""Scores of other versions of libraries, and of other processors, differ by some hundredths."""


def executed(folder: str) -> Any:
    """Return the notebook with what it prints when it is run in a folder."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The kernel's connection files and settings belong to this run as well.
    os.environ.update(JUPYTER_RUNTIME_DIR=folder, IPYTHONDIR=folder, JUPYTER_PLATFORM_DIRS="1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,
        startup_timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": folder}},
    )
    # Sockets in that folder instead of ports, which other users of the machine could reach.
    manager = client.create_kernel_manager()
    manager.transport, manager.ip = "ipc", str(Path(folder, "kernel"))
    client.execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [_plain(output) for output in cell.outputs if _shown(output)]
    return notebook


def _shown(output: Any) -> bool:
    """What libraries log differs from run to run, and is not the answer of a cell."""
    return not (output.output_type == "stream" and output.name == "stderr")


def _plain(output: Any) -> Any:
    """Return an output with its best form alone: picture, table or text."""
    output.pop("execution_count", None)
    if output.output_type == "execute_result":
        output.output_type = "display_data"
    if output.output_type == "display_data":
        kinds = [kind for kind in ("image/png", "text/html", "text/plain") if kind in output.data]
        output.data = {kinds[0]: output.data[kinds[0]]}
    return output


def texts(notebook: Any) -> list[str]:
    """Return what was printed, and `picture` for each picture, whose bytes differ by fonts."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            text = output.get("text") or data.get("text/html") or data.get("text/plain")
            found.append(text or "picture")
    return found


def differences(stored: list[str], now: list[str]) -> list[str]:
    """Return how the outputs differ: in words exactly, in fractions by more than the tolerance."""
    if len(stored) != len(now):
        return [f"{len(now)} outputs instead of {len(stored)}"]
    problems = []
    for number, (before, after) in enumerate(zip(stored, now, strict=True), 1):
        values = [list(map(float, _NUMBER.findall(text))) for text in (before, after)]
        if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
            problems.append(f"output {number} is other than stored:\n{after}")
        elif any(abs(a - b) > _TOLERANCE for a, b in zip(*values, strict=True)):
            problems.append(f"numbers of output {number} are other than stored:\n{after}")
    return problems


def main() -> int:
    stored = texts(nbformat.read(NOTEBOOK, as_version=4))
    with tempfile.TemporaryDirectory(prefix="bench-tutorial-") as folder:
        notebook = executed(folder)
        places = (folder, str(ROOT), str(Path.home()))
    written = nbformat.writes(notebook)
    for place in places:
        if any(place in text for text in texts(notebook)):
            print(f"an output names the folder {place}", file=sys.stderr)
            return 1
    if "--check" not in sys.argv:
        NOTEBOOK.write_text(written + "\n", encoding="utf-8")
        print(f"{NOTEBOOK.relative_to(ROOT)}: {len(texts(notebook))} outputs")
        return 0
    problems = differences(stored, texts(notebook))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("after a change of results: make tutorial", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
