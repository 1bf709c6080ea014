"""How useful a release is for survival analysis.

`c_index`, `brier_and_td_auc`, `kaplan_meier` (observed and predicted curves) and `hazard_ratios`.
They share `_curves` (Kaplan-Meier, Breslow, log-rank), `_cox` (weighted Cox fit, robust standard
errors) and `_survival_models` (survival probabilities). Ranking metrics train on the rows as they
were released; whatever describes absolute survival weights them to the real shares of events
and censored rows. All metrics use the same resamples of the test rows.
"""
