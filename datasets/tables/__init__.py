"""Tables with a class to predict, read from installed packages or from files anybody can download.

eICU is here beside its open demo, although the full database needs an agreement: both have one
loader.
"""
