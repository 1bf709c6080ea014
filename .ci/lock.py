"""Write requirements.lock: the versions of constraints.txt with the hashes of their files.

    .venv/bin/python .ci/lock.py

pip looks up the files for this platform and this Python, and installs nothing. Names of an index
or of folders on this machine are not written.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

APART = {
    "torch": (
        "The file on PyPI for Linux is a CUDA build, which brings further packages; CPU builds "
        "come from PyTorch's own index, under the same version and with other hashes."
    ),
    "xgboost": "Used on macOS only, where xgboost-cpu has no files.",
}

HEAD = """\
# The files that constraints.txt stands for on Linux (x86-64) with Python {python}, by their hashes.
# Written by `make lock` after a change of constraints.txt; for the environment of a release build:
#
#     pip install -c constraints.txt torch
#     pip install --require-hashes --no-deps -r requirements.lock
#
# Not in this list, with the reason:
"""


def main() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if "==" in line and not line.startswith("#")]
    locked = [pin for pin in pins if pin.split("==")[0] not in APART]
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder) / "wanted.txt", Path(folder) / "report.json"
        wanted.write_text("\n".join(locked), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--no-deps", "--quiet", "--report", str(report), "-r", str(wanted)]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))
    entries = sorted(_entry(item) for item in found["install"])
    if len(entries) != len(locked):
        sys.exit(f"{len(locked)} versions are wanted, but pip found {len(entries)}")
    version = ".".join(map(str, sys.version_info[:2]))
    apart = "".join(f"#   {name}: {why}\n" for name, why in APART.items())
    text = HEAD.format(python=version) + apart + "\n".join(entries) + "\n"
    (ROOT / "requirements.lock").write_text(text, encoding="utf-8")
    print(f"requirements.lock: {len(entries)} versions")


def _entry(item: dict[str, dict[str, dict[str, dict[str, str]]]]) -> str:
    name = re.sub(r"[-_.]+", "-", str(item["metadata"]["name"])).lower()
    digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{name}=={item['metadata']['version']} \\\n    --hash=sha256:{digest}"


if __name__ == "__main__":
    main()
