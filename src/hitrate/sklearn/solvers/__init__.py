"""How the estimators' networks and linear classifiers are fitted."""
