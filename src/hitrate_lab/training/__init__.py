"""Training of networks: many small ones at once in `batched`, and what is measured of them."""
