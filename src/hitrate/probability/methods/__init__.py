"""How log p is computed: one file per method, each from margins to value and slope."""
