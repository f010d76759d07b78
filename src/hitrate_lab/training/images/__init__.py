"""What training does to pictures: crops, flips and stronger changes, as tensor operations."""
