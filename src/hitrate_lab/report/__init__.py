"""A comparison or a study as one HTML page that needs nothing but a browser.

The document of ``hitrate compare --json`` or ``hitrate study report --json`` becomes a plain
dictionary (:mod:`.view`, :mod:`.study`), then inline pictures (:mod:`.pictures`) and text in a
template. The page loads nothing and runs only its own
script, so it can be mailed, archived and opened years later.
"""

from hitrate_lab.report.page import drawn_pictures, render, write_pictures, write_report

__all__ = ["drawn_pictures", "render", "write_pictures", "write_report"]
