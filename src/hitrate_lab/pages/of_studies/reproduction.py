"""The tables and pictures of the reproduction pages, from the committed runs of each study."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made
from hitrate_lab.report import drawn_pictures
from hitrate_lab.studies import document, read_study
from hitrate_lab.studies.markdown import sections
from hitrate_lab.studies.results import load


@dataclass(frozen=True)
class Shown:
    """Where a study is shown, and which sections of its report and pictures."""

    page: str
    titles: tuple[str, ...]
    pictures: tuple[str, ...] = ()


ACCURACY = "Test accuracy, %"
BOTH = ("Training accuracy, %", ACCURACY)
TIME, MEMORY = "Time as a multiple of cross entropy's", "Memory per element"
RANKS = tuple(
    f"mixing-{model}{seed}-ranks"
    for model in ("linear", "hidden")
    for seed in ("", "-seed-0", "-seed-1")
)
HEADROOM, FITTED = "Gain, training error and headroom", "What the gain goes with"
DIFFERENCES, CE = "Accuracy of CE, and differences from it", "Differences from CE"
NEXT_WORDS = ("Next words", "Steps a second")
SHOWN = {
    "capacity_map": Shown(
        "images",
        ("Gain by the share of wrong labels", "The map", FITTED),
        ("capacity-map", "capacity-training-error", "capacity-headroom"),
    ),
    "capacity_noise_small": Shown("images", (HEADROOM, "Differences from cross entropy")),
    "exact_table_1_2": Shown("exact_tables", BOTH, ("exact-gradient-norms",)),
    "exact_search": Shown("exact_tables", BOTH),
    "exact_table_4": Shown("exact_tables", (ACCURACY,)),
    "exact_table_5": Shown("exact_tables", (ACCURACY,)),
    "exact_table_6": Shown("exact_tables", (ACCURACY,)),
    "exact_figure_6": Shown("exact_tables", (ACCURACY,)),
    "exact_figure_7": Shown(
        "exact_cost", ("Growth", "Time per element", TIME, MEMORY), ("exact_figure_7",)
    ),
    "exact_figure_7_gpu": Shown("exact_cost", (TIME, MEMORY)),
    "gain_law": Shown(
        "gain_law",
        (
            "What predicts the gain",
            "Gain by what was known before",
            "Looked at afterwards: where test rows are many",
            "What is gained over tuned CE",
            "The last layer of headroom(), by where its path ended",
        ),
        ("gain-law", "gain-refit"),
    ),
    "mixing_table_3": Shown(
        "text",
        (
            *(f"Architecture {k}: test accuracy, %" for k in range(1, 6)),
            CE,
        ),
    ),
    "mixing_table_4": Shown(
        "mixing_tables",
        ("Table 4, linear", "Table 4, one hidden layer"),
        (*RANKS, "mixing-linear-profile", "mixing-hidden-profile"),
    ),
    "mixing_table_4_more": Shown("mixing_tables", ("Ranking: Linear", "Ranking: One hidden layer")),
    "mixing_escape": Shown(
        "mixing_theory",
        (
            "Same weights, of training with CE, one hidden layer",
            "Same weights, of training with CE, one hidden layer, same norm",
            "Each loss at its own weights, one hidden layer",
            "Equation 18, one hidden layer",
        ),
    ),
    "mixing_example": Shown("images", ("What is still learnt",), ("mixing-example",)),
    "mixing_gradient_norm": Shown(
        "mixing_theory",
        (
            "Size of gradients over that of CE, one hidden layer",
            "Differences of test accuracy, linear",
            "Differences of test accuracy, one hidden layer",
        ),
    ),
    "text_heads": Shown(
        "text",
        (
            DIFFERENCES,
            "Over 22 pairs of a data set and a model",
            "Gradient at the target's logit",
            HEADROOM,
            FITTED,
        ),
        ("text-heads-training-error", "text-heads-headroom"),
    ),
    "text_words": Shown("text", (DIFFERENCES, "Training accuracy, %")),
    "text_glue": Shown(
        "text",
        (
            "Linear: test accuracy, %",
            "16 hidden units: test accuracy, %",
            DIFFERENCES,
            "Over 10 pairs of a data set and a model",
        ),
        ("text-glue-minilm-linear-profile", "text-glue-minilm-hidden-16-profile"),
    ),
    "text_intents_imbalanced": Shown(
        "text",
        (
            "Balanced accuracy of CE, and differences from it",
            "Balanced accuracy of balanced softmax, and differences from it",
            "Linear: balanced accuracy, %",
            "16 hidden units: balanced accuracy, %",
        ),
    ),
    "text_intents_fine_tuned": Shown("text", (DIFFERENCES, "How training went")),
    "text_next_words": Shown("text", NEXT_WORDS),
    "text_next_words_top_3": Shown("text", NEXT_WORDS),
}


def reproduction(name: str, root: Path) -> Made:
    """What the pages show of one study, between the marks of its name."""
    shown, report = SHOWN[name], committed_report(name, root)
    texts = sections(report)
    block = "\n\n".join(f"**{title}**\n\n{texts[title]}" for title in shown.titles)
    drawn = drawn_pictures(report) if shown.pictures else {}
    return Made(
        {f"docs/reproduction/{shown.page}.md": {name.replace("_", "-"): block}},
        {f"docs/images/{picture}.svg": drawn[picture] for picture in shown.pictures},
    )


def committed_report(name: str, root: Path) -> dict[str, Any]:
    """The report of a study's committed runs, as `document` makes it."""
    study = read_study(root / "studies" / f"{name}.toml")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs.sqlite"
        load(root / "studies" / "results" / f"{name}.jsonl.gz", store)
        return document(study, store)
