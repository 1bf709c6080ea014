"""How attackable a release is: attacks and disclosure measures, beside a control.

`membership` asks whether a record was used, `disclosure` what a release reveals about a record. A
metric here compares training rows with control rows, which no method has seen, so that knowledge
about the population is not counted as leakage; values below chance are not clipped. An attack that
failed its power check says so in `Output.weak`.
"""
