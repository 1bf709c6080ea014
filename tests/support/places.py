"""Where the repository is, whatever the depth of a test."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
