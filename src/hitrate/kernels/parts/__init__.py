"""What kernels are put together from: nodes, places of classes, links and how rows are read."""
