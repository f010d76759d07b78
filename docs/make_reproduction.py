"""Write the tables of the reproduction pages anew, from the committed runs.

python docs/make_reproduction.py

Between <!-- NAME:start --> and <!-- NAME:end --> a page is written here, all else by hand.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hitrate_lab.studies import document, markdown, read_study
from hitrate_lab.studies.report import load

DOCS = Path(__file__).resolve().parent
STUDIES = DOCS.parent / "studies"

# For each page its blocks; for each block a study, and the sections of its report.
PAGES: dict[str, dict[str, tuple[str, list[str]]]] = {
    "reproduction/exact_tables.md": {
        "exact-tables-1-2": ("exact_table_1_2", ["Training accuracy, %", "Test accuracy, %"]),
        "exact-search": ("exact_search", ["Training accuracy, %", "Test accuracy, %"]),
        "exact-table-4": ("exact_table_4", ["Test accuracy, %"]),
        "exact-table-5": ("exact_table_5", ["Test accuracy, %"]),
        "exact-table-6": ("exact_table_6", ["Test accuracy, %"]),
        "exact-figure-6": ("exact_figure_6", ["Test accuracy, %"]),
    },
    "reproduction/exact_cost.md": {
        "exact-figure-7": (
            "exact_figure_7",
            [
                "Growth",
                "Time per element",
                "Time as a multiple of cross entropy's",
                "Memory per element",
            ],
        ),
        "exact-figure-7-gpu": (
            "exact_figure_7_gpu",
            ["Time as a multiple of cross entropy's", "Memory per element"],
        ),
    },
    "reproduction/gain_law.md": {
        "gain-law": (
            "gain_law",
            [
                "What predicts the gain",
                "Gain by what was known before",
                "Looked at afterwards: where test rows are many",
                "What is gained over tuned CE",
                "The last layer of headroom(), by where its path ended",
            ],
        ),
    },
    "reproduction/mixing_tables.md": {
        "mixing-table-4": ("mixing_table_4", ["Table 4, linear", "Table 4, one hidden layer"]),
        "mixing-table-4-more": (
            "mixing_table_4_more",
            ["Ranking: Linear", "Ranking: One hidden layer"],
        ),
    },
    "reproduction/mixing_theory.md": {
        "mixing-escape": (
            "mixing_escape",
            [
                "Same weights, of training with CE, one hidden layer",
                "Same weights, of training with CE, one hidden layer, same norm",
                "Each loss at its own weights, one hidden layer",
                "Equation 18, one hidden layer",
            ],
        ),
        "mixing-gradient-norm": (
            "mixing_gradient_norm",
            [
                "Size of gradients over that of CE, one hidden layer",
                "Differences of test accuracy, linear",
                "Differences of test accuracy, one hidden layer",
            ],
        ),
    },
}


def report_of(name: str) -> str:
    """The report of a study's committed runs, in Markdown."""
    study = read_study(STUDIES / f"{name}.toml")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs.sqlite"
        load(STUDIES / "results" / f"{name}.jsonl.gz", store)
        return markdown(document(study, store))


def block(report: str, titles: list[str]) -> str:
    """Some sections of a report, their headings in bold."""
    parts = re.split(r"^## (.+)\n", report, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return "\n\n".join(f"**{title}**\n\n{sections[title].strip()}" for title in titles)


def written(page: str) -> str:
    """A page with its blocks as the committed runs have them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, (study, titles) in PAGES[page].items():
        start, end = f"<!-- {name}:start -->\n", f"\n<!-- {name}:end -->"
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = f"{before}{start}{block(report_of(study), titles)}{end}{after}"
    return text


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(written(page), encoding="utf-8")
        print(DOCS / page)
