"""``dpaudit demo``, ``run`` and ``report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpaudit.cli.data import use_data_root
from dpaudit.cli.output import emit, note, out_console, progress_bar, write_json_line
from dpaudit.errors import SpecError, StoreError
from dpaudit.report import experiment_table, measurements_table, write_json, write_report

__all__ = ["demo", "report", "run"]


def demo(out: Path, output: str) -> None:
    """The built-in experiment ``demo``; an earlier demo in ``out`` is replaced."""
    from dpaudit.experiments import Store

    if (out / "results.sqlite").exists():
        with Store.read(out) as store:
            name = store.spec.get("name")
        if name != "demo":
            raise StoreError(f"out={out}: holds results of {name!r}, not of a demo; choose another --out")
        for file in out.glob("results.sqlite*"):
            file.unlink()
    _run("demo", out=out, resume=False, trials=None, output=output, command="dpaudit demo")


def run(
    experiment: str,
    *,
    out: Path | None,
    resume: bool,
    trials: int | None,
    device: str,
    data_root: Path | None,
    output: str,
) -> None:
    """Run a named or written experiment."""
    use_data_root(data_root)
    command = f"dpaudit run {experiment}" + (f" --trials {trials}" if trials is not None else "")
    command += f" --device {device}" if device != "cpu" else ""
    folder = out if out is not None else Path("runs") / Path(experiment).name.removesuffix(".toml")
    _run(experiment, out=folder, resume=resume, trials=trials, device=device, output=output, command=command)


def _run(
    name: str, *, out: Path, resume: bool, trials: int | None, output: str, command: str, device: str = "cpu"
) -> None:
    from dpaudit.experiments import load_spec, run_experiment

    spec = load_spec(name, trials=trials, device=device)
    if spec.measure != "attack" and not spec.columns:
        raise SpecError(
            f"spec={name}: [[column]] is missing; say what the table of measure={spec.measure!r} shall show"
        )
    cells = spec.cells()
    with progress_bar() as bar:
        task = bar.add_task(spec.name, total=len(cells))
        run_experiment(
            spec,
            out=out,
            resume=resume,
            on_start=lambda cell: bar.update(task, description=cell.label),
            on_done=lambda _: bar.advance(task),
        )
    document = _document(out, command)
    write_json(document, out / "results.json")
    page = write_report(document, out / "report.html")
    if output == "json":
        write_json_line(document)
    else:
        width = out_console().width
        table = measurements_table if document["kind"] == "measurements" else experiment_table
        emit(table(document, width=width))
        note(f"report: {page}")


def _document(folder: Path, command: str) -> dict[str, Any]:
    from dpaudit.experiments import Store, make_document

    with Store.read(folder) as store:
        return make_document(store.spec, store.results(), command=command)


def report(folder: Path) -> None:
    """Write the page of an experiment's or an audit's folder."""
    if (folder / "result.json").is_file():
        document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    else:
        from dpaudit.experiments.store import Store

        with Store.read(folder) as store:
            name = store.spec.get("name", "")
        document = _document(folder, f"dpaudit run {name}")
    emit(str(write_report(document, folder / "report.html")))
