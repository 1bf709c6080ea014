"""The static site: `site.write_site` compiles a `board.Board` and writes all pages and tables.

One module per kind of page: front page, plots, cards of methods and datasets, cells. Everything
else in the leaderboard may be imported here, and nothing in the leaderboard imports this room.
"""
