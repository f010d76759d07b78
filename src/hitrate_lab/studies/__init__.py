"""Studies: a file says what to run, runs are kept one by one, a report puts them beside a paper.

A kind of study is a protocol, a subclass of `Protocol`: what one run is, and what the report shows.
"""

from hitrate_lab.runs.events import Event
from hitrate_lab.studies.markdown import markdown
from hitrate_lab.studies.protocol import Protocol
from hitrate_lab.studies.report import document
from hitrate_lab.studies.running import Status, plan_of, run_study, status_of
from hitrate_lab.studies.study_file import Study, find_study, found_studies, read_study

__all__ = [
    "Event",
    "Protocol",
    "Status",
    "Study",
    "document",
    "find_study",
    "found_studies",
    "markdown",
    "plan_of",
    "read_study",
    "run_study",
    "status_of",
]
