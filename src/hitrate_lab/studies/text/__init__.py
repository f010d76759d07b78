"""Texts: heads on what an encoder or a bag of words makes of them, and networks over words."""
