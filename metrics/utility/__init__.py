"""How useful a release is: models trained on it, tested on real rows.

`classification` (AUROC, AUPRC, accuracy, rates), `image_classification` (networks, which
`_networks` trains), `regression`, `explanations` (SHAP), `groups` (subgroups and other sites), and
`paired`, which compares two methods on stored predictions. A metric here tests on test rows only,
takes its intervals from resamples of the test rows, and compares with the same model trained on the
real training rows through `Evaluation.reference`, so that the real side is computed once.
"""
