"""One leaf module for each host: it imports the host, and nothing else here imports it."""
