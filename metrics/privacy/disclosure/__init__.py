"""Disclosure: what does a release reveal about a training row?

`closest_record` (DCR), `copies` (high-risk rows, NNDR), `sample_correlation`, `singling_out`,
`linkability`, `attribute_inference` (by regression), `quasi_identifiers` and `disclosure_risk`
(both by matching, which `_matching` does; `_jenks` finds natural classes of numbers). Released and
real rows are compared as a reader would see them, after encoding and decoding.
"""
