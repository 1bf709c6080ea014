"""Charts: one layer on Altair and Vega-Lite for pages, dossiers, files and MLflow.

`chart` holds the record of a chart (specification, data, words), colours and files; `sheet` puts
charts into pages. Charts over all results are computed from rows of the leaderboard (`tradeoffs`,
`overview`, `audit`, drawn by `draw`), those of one cell from its files (`cell`); `gallery` names
all of them for `bench plot`. Altair is imported when a chart is built, never before.
"""
