"""The contracts of methods, metrics and datasets, and everything that treats them as plugins.

`method`, `metric`, `source` and `release` are what a plugin implements or returns, and `returned`
checks what comes back; `registry` finds plugins, `description` describes them for `bench list`
(`catalogue`), the documentation (`cards`) and the pages; `scaffold` writes new ones; `data_files`
and `user_tables` are behind `bench data`.
No shipped plugin is imported here except by name, through the registry.
"""
