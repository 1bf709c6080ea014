"""Membership inference: can an attacker infer whether a record was used?

`attacks` (nearest neighbours, DOMIAS, distance threshold), `file_membership` and `exposure` (both
refit the method). `_roc` computes AUROC, advantage and TPR at low FPR of any attack with scores.
Members are training rows, non-members control rows; both occur once in the two tables together.
"""
