"""When training for accuracy pays."""
