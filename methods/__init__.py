"""Method plugins: a method is one file, or one folder of methods that share helpers.

Plugins import from `bench` and from their folder; what several families share is in `_shared`.
Modules and folders whose name starts with an underscore are helpers and hold no plugin.
"""
