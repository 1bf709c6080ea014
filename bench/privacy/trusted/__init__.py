"""Mechanisms of other libraries that the harness calls itself.

`table.py` lists them with library, checked versions and event; one module per library calls them
(`ebm.py`: interpret; `smartnoise.py` and `mwem.py`: smartnoise-synth). A module may enter once its
library's code was read: its docstring holds the proof, what the library does wrong, and what is
done about it. What leaves is a noisy answer; the kernel charges the event before the call.
`ratio.py` is for audits, which run the private steps again and ask how likely their answers were.
"""
