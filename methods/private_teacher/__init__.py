"""Condensation of a teacher that was fitted with privacy: tables and survival datasets.

Only `count_classes`, the fits of `_teachers` and `_survival.fit_teacher` call the kernel;
everything else is post-processing of their answers.

- `private_teacher_dc`: the method and its hyperparameters.
- `_bins`: public bins of features, noisy counts in them, merged bins.
- `_teachers`: naive Bayes, the additive teacher and interpret-core's boosting machine.
- `_pool`: the schema's rules about features, and rows that follow them.
- `_students`: models that are trained on a release and compared with the teacher.
- `_condense`: balanced draws and the search for rows of a table.
- `_survival`: the private calls for survival datasets, and the release.
- `_survival_model`: hazard, Cox's risk, associations and the pool of survival datasets.
- `_survival_condense`: rows on which Cox's model agrees with the teacher.
"""
