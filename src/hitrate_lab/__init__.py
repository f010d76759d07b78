"""Studies, demonstrations and the command line built on :mod:`hitrate`.

This package imports :mod:`hitrate`; the library never imports it back, so whoever only trains
a model with a hitrate loss pays for none of the plotting and statistics that live here.
"""
