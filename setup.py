"""Lists the packages of the distribution; everything else is said in pyproject.toml.

The folders at the root get import names under `bench`, and every folder inside them is a package.
They are found here, so that a new folder needs no change: `packages.find` cannot rename.
"""

from setuptools import find_packages, setup

ROOMS = ("datasets", "leaderboard", "methods", "metrics")

setup(
    packages=[
        "bench",
        *(f"bench.{name}" for name in find_packages("bench")),
        *(f"bench.{room}" for room in ROOMS),
        *(f"bench.{room}.{name}" for room in ROOMS for name in find_packages(room)),
    ]
)
