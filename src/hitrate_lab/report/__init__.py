"""A comparison as one HTML page that needs nothing but a browser.

The document of ``hitrate compare --json`` becomes a plain dictionary (:mod:`.view`), then inline
pictures (:mod:`.pictures`) and text in a template. The page loads nothing and runs only its own
script, so it can be mailed, archived and opened years later.
"""

from hitrate_lab.report.page import render, write_report

__all__ = ["render", "write_report"]
