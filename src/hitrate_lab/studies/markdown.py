"""The report of a study as a page of Markdown."""

from __future__ import annotations

import json
from typing import Any

from hitrate_lab.studies.report import DECIMALS


def markdown(report: dict[str, Any]) -> str:
    """The report as a page of Markdown.

    Parameters
    ----------
    report : dict
        As from `document`.
    """
    lines = [f"# {report['title']}", "", f"Reproduces {report['reproduces']}.", ""]
    lines.append(_progress(report))
    for title, text in sections(report).items():
        lines += ["", f"## {title}", "", text]
    if report["differences"]:
        lines += ["", "## Where this differs from the paper", ""]
        lines += [f"- {difference}" for difference in report["differences"]]
    for word in ("processor", "device", "commit"):
        if found := report[f"{word}s"]:
            name = word.capitalize() + "s" * (len(found) > 1)
            lines += ["", f"{name}: {', '.join(found)}."]
    for made_with in report["made_with"]:
        parts = json.loads(made_with)
        lines += ["", f"Made with {', '.join(f'{k} {v}' for k, v in parts.items())}."]
    return "\n".join(lines) + "\n"


def sections(report: dict[str, Any]) -> dict[str, str]:
    """The tables and rankings of the report in Markdown, by their titles.

    Parameters
    ----------
    report : dict
        As from `document`.
    """
    found = {}
    for table in report["tables"]:
        found[table["title"]] = [*_markdown_table(table), *_findings(table)]
    for table in report["extra_tables"]:
        found[table["title"]] = [table_text(table)]
    for ranking in report["rankings"]:
        found[f"Ranking: {ranking['title']}"] = _ranking(ranking)
    return {title: "\n".join(lines) for title, lines in found.items()}


def table_text(table: dict[str, Any]) -> str:
    """A table of a protocol's own in Markdown, with the text below it.

    Parameters
    ----------
    table : dict
        As `Protocol.extra_tables` makes them.
    """
    rows = [table["head"], ["---"] * len(table["head"]), *table["rows"]]
    return "\n".join([*_lines(rows), "", table["text"]])


def _progress(report: dict[str, Any]) -> str:
    failed = f", {report['failed']} failed" if report["failed"] else ""
    judges = any(table["has_best"] for table in report["tables"])
    best = "; the best of each row is bold, as printed" if judges else ""
    return (
        f"{report['done']} of {report['planned']} runs{failed}; {report['seconds']:,.0f} s of "
        f"work in all. Mean ± standard deviation (n), the paper's beside ours{best}."
    )


def _markdown_table(table: dict[str, Any]) -> list[str]:
    every = [row["cells"] for row in table["rows"]]
    printed = {
        name: any(cells[name]["paper"] is not None for cells in every) for name in table["methods"]
    }
    rows: list[list[str]] = [["data set"], ["---"]]
    for name in table["methods"]:
        rows[0] += [name, "paper"] if printed[name] else [name]
        rows[1] += ["---:", "---:"] if printed[name] else ["---:"]
    for row in table["rows"]:
        line = [row["data_set"].split("/")[-1]]
        for name in table["methods"]:
            cell = row["cells"][name]
            ours = _number(cell["mean"], cell["std"])
            if cell["n"]:
                ours = f"{_bold(ours, name in row['best'])} ({cell['n']})"
            line.append(ours)
            if printed[name]:
                paper = _number(cell["paper"], cell["paper_std"])
                line.append(_bold(paper, name in row["paper_best"]))
        rows.append(line)
    if not table["has_best"]:
        return _lines(rows)
    total = ["best or equal"]
    for name in table["methods"]:
        total.append("-" if name in table["variants"] else str(table["best"][name]))
        if printed[name]:
            total.append(str(table["paper_best"][name]))
    rows.append(total)
    return _lines(rows)


def _ranking(ranking: dict[str, Any]) -> list[str]:
    """Mean ranks, differences to the first method, and what the tests say."""
    first, *others = ranking["methods"]
    ranks, rope = ranking["ranks"], ranking["rope"]
    head = ["method"] + ["mean rank"] * (ranks is not None)
    head += [f"mean difference to {first}", "median", "wins, ties, losses"]
    head += ["worse, equal, better in practice, %"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)], [first]]
    for name, effect in zip(others, ranking["effects"], strict=True):
        sizes = (
            f"{each['value']:+.2f} ({each['low']:+.2f} to {each['high']:+.2f})"
            for each in (effect["mean"], effect["median"])
        )
        counts = f"{effect['wins']}, {effect['ties']}, {effect['losses']}"
        bayes = effect["bayes"]
        chances = ", ".join(f"{100 * bayes[how]:.1f}" for how in ("worse", "equal", "better"))
        rows.append([name, *sizes, counts, chances])
    rows[2] += ["-"] * 4
    lines = [f"{len(ranking['data_sets'])} data sets."]
    lines += [ranking["text"]] * bool(ranking["text"])
    if ranks is not None:
        for row, rank in zip(rows[2:], ranks["mean"], strict=True):
            row.insert(1, f"{rank:.2f}")
        test = ranks["friedman"]
        f = "infinite" if test["f"] is None else f"{test['f']:.2f}"
        lines.append(
            f"Friedman's χ² is {test['statistic']:.2f}, p = {test['p']:.2g}; Iman and Davenport's "
            f"F is {f}, p = {test['f_p']:.2g}."
        )
        together = "; ".join(", ".join(group) for group in ranks["groups"]) or "none"
        lines.append(
            "Not told apart by Conover's test at 5 %, adjusted by Benjamini and Hochberg: "
            f"{together}."
        )
    lines.append(
        "Differences are in points, with 95 % BCa bootstrap intervals over data sets; the last "
        "column has the probabilities of the Bayesian signed-rank test, where differences of up "
        f"to {rope:g} count as equal."
    )
    return [*_lines(rows), "", " ".join(lines)]


def _lines(rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def _findings(table: dict[str, Any]) -> list[str]:
    """How much agrees with the paper, and who wins where."""
    lines = []
    if table["judged"]:
        lines.append(
            "The paper's number is within two standard deviations of our mean, or as close as its "
            f"rounding, in {table['within']} of {table['judged']} cells."
        )
    if table["variants"] and table["has_best"]:
        are = "is a variant" if len(table["variants"]) == 1 else "are variants"
        names = " and ".join(f'"{name}"' for name in table["variants"])
        lines.append(f"{names} {are}, not counted for the best and in ranks.")
    for name in table["methods"]:
        where = [row["data_set"].split("/")[-1] for row in table["rows"] if row["best"] == [name]]
        if where:
            lines.append(f"{name} alone is best on {', '.join(where)}.")
    shared = [row["data_set"].split("/")[-1] for row in table["rows"] if len(row["best"]) > 1]
    if shared:
        lines.append(f"Several are best on {', '.join(shared)}.")
    unfinished = sum(not row["complete"] for row in table["rows"])
    if unfinished:
        lines.append(f"Rows that are not complete yet, and not judged: {unfinished}.")
    return ["", " ".join(lines)] if lines else []


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.{DECIMALS}f}" + ("" if std is None else f" ± {std:.{DECIMALS}f}")


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text
