"""Every generator by its name: what it makes, and nothing else, is written by `make pages`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from hitrate_lab.pages.count_pictures import counts
from hitrate_lab.pages.house.architecture_page import architecture
from hitrate_lab.pages.loss_pictures import losses
from hitrate_lab.pages.made import Made, png_of
from hitrate_lab.pages.measured.cpu_tables import cpu
from hitrate_lab.pages.measured.demo_table import demo
from hitrate_lab.pages.measured.gpu_tables import gpu
from hitrate_lab.pages.measured.large_inputs import large_inputs
from hitrate_lab.pages.measured.robustness_page import robustness
from hitrate_lab.pages.measured.sklearn_defaults import sklearn_defaults
from hitrate_lab.pages.measured.sklearn_tables import sklearn
from hitrate_lab.pages.measured.top_k_page import top_k
from hitrate_lab.pages.of_studies.gain_everywhere import gain_everywhere
from hitrate_lab.pages.of_studies.image_plan import image_plan
from hitrate_lab.pages.of_studies.reproduction import SHOWN, reproduction
from hitrate_lab.pages.of_studies.text_plan import text_plan
from hitrate_lab.toy import figures, studies, tables


def toy(root: Path) -> Made:
    """All that the toy problems show, computed anew: half a minute."""
    results = studies.run()
    return Made(
        {"docs/toy.md": tables.blocks(results)},
        {
            f"docs/images/{name}.png": png_of(draw(results))
            for name, draw in figures.FIGURES.items()
        },
        is_computed=True,
    )


# From the repository's root to what there should be.
GENERATORS: dict[str, Callable[[Path], Made]] = {
    "architecture": architecture,
    "counts": counts,
    "cpu": cpu,
    "demo": demo,
    "gain_everywhere": gain_everywhere,
    "gpu": gpu,
    "image_plan": image_plan,
    "large_inputs": large_inputs,
    "losses": losses,
    "robustness": robustness,
    "sklearn": sklearn,
    "sklearn_defaults": sklearn_defaults,
    "text_plan": text_plan,
    "top_k": top_k,
    "toy": toy,
    **{name: partial(reproduction, name) for name in SHOWN},
}
