"""Studies: a file says what to run, runs are kept one by one, a report puts them beside a paper.

A protocol is a module that knows what one run is. It has

- ``plan(study)``: specifications of all runs, plain JSON, each with at least "study", "protocol"
  and "data_set"; all that a result depends on is in there;
- ``run(specification, data_dir)``: one result, plain JSON, with at least "seconds";
- or, where runs are computed together, ``batch_of(specification)``, a text that those of a batch
  share, and ``run_batch(specifications, data_dir, known, device)``: for each a result, or the
  exception that it ended in;
- ``needs(specification, plan)``, beside ``run_batch``, if a run needs others' results: their
  specifications. It begins when they are there, and finds them in ``known`` by their keys;
- ``cells(specification, result)``: what a result adds to the report, as tuples of a measure, a
  data set, a method and a number;
- ``check(study)``, if the study's file has fields of the protocol's own, and
  ``check_machine(study)``, if not every machine can run it;
- ``extra_tables(study, runs)``, if the report has tables that are not of measures by data set and
  method: dicts of a "title", a "head" and "rows" of texts, and a "text" to stand below;
- ``pictures(study, runs)``, if the report has pictures beside those of its rankings: texts of .svg
  files with a title and a description inside, by the names that the files get;
- ``score_tables(study, runs)``, if methods are not to be ranked by the mean of each accuracy: see
  `hitrate_lab.studies.rankings`.
"""

from hitrate_lab.studies.markdown import markdown
from hitrate_lab.studies.report import document
from hitrate_lab.studies.running import Status, plan_of, run_study, status_of
from hitrate_lab.studies.study_file import Study, find_study, found_studies, read_study

__all__ = [
    "Event",
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
