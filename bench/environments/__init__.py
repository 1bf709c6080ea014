"""Overlay environments of methods whose packages cannot be installed in the main one.

`overlays.py` has all of it: where an overlay is, its state, how it is built, probed and removed.
What a method declares (`Environment`: name, requirements, modules) is a contract in
`bench.plugins.method`; running a task in an overlay's interpreter is the work of
`bench.cluster`. What leaves is the path of an interpreter, or one line that states why there is
none.
"""
