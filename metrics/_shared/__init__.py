"""What metrics of several folders share; nothing here is a plugin.

`bootstrap` holds every bootstrap and the statistics that are functions of weights; `auroc` and
`c_index` are two such statistics. `intervals` has intervals in closed form. `downstream_models`
trains XGBoost, Cox and other models on released or real rows. `record_distance` compares decoded
records, `encoded_distance` compares encoded points, `rows` prepares them, and `kernels` holds the
compiled loops of both (imported lazily). A helper enters when metrics of two folders need it.
"""
