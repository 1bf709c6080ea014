"""The leaderboard: reads result tables, ranks methods, and writes a static site and dossiers.

Rooms, each of which imports only from those before it: `tables` (what run directories hold),
`ranking` (rows of the leaderboard, ranks and tests), `charts` (figures as SVG), `templates` (HTML
and what fills it), `export` (CSV, Parquet, Markdown, LaTeX) and `dossier` (pages about one
release), `pages` (the site). Nothing here trains a model or opens a private row.
"""
