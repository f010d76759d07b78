"""What is run: comparisons of methods, and the fit and use of one."""
