"""Studies of networks: images."""
