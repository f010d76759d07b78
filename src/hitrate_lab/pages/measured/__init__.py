"""What the pages show of measurements of speed, memory and accuracy."""
