"""HTML, CSS and JavaScript of all pages, and `rendering`, which fills and writes them.

A template gets finished values: it formats, but it neither computes nor reads files. What leaves
are `rendering.page` and the paths of pages within the site.
"""
