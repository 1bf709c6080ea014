"""Tables and what is publicly known about them: schema, encoder, splits, data files.

Nothing here learns from rows: everything that scales, encodes, splits or clips takes its constants
from a declaration. Plugins of datasets enter through `bench.plugins.source`; the privacy kernel and
the metrics get a `Dataset`, whose rows are split and encoded. Imports `bench.errors` and
`bench.stats` only.
"""
