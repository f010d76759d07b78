"""scikit-learn's checks that the estimator cannot pass, and why; read by the study as well."""

_SPLITS = (
    "A repeated row may fall on both sides of a split, a row with weight 2 cannot: what the inner "
    "split chooses and the held-out temperature differ, as in LogisticRegressionCV. Without a "
    "split the weights agree: test_a_weight_of_two_is_a_row_twice."
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": _SPLITS,
    "check_sample_weight_equivalence_on_sparse_data": _SPLITS,
}

# Of the network: besides, batches are other batches where a row is there twice.
EXPECTED_OF_NETWORK = {
    name: "A repeated row falls into another split, and other batches, than a row with weight 2."
    for name in EXPECTED
}

# Ways to use it, by name.
ESTIMATORS = {
    "defaults": {},
    "fixed": {"l2": 0.01, "sigma": 0.5, "margin": None, "polish": False},
    "sgd": {"solver": "sgd", "l2": 0.0, "margin": 0.1, "max_iter": 100, "learning_rate": 1.0},
}
# Of the network, small enough for many fits.
NETWORKS = {
    "early stopping": {"max_iter": 40, "hidden_size": 16},
    "not again": {"max_iter": 40, "hidden_size": 16, "refit": False},
    "all rows": {
        "max_iter": 40,
        "hidden_size": 16,
        "learning_rate": 0.02,
        "batch_size": 64,
        "early_stopping": False,
    },
}
