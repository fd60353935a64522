"""An experiment of a few seconds, from the text of its specification to its result."""

from __future__ import annotations

from pathlib import Path

from dpaudit.experiments import Store, load_spec, make_result, run_experiment


def result_of(text: str, folder: Path, name: str = "out"):
    """Run the experiment that ``text`` describes in ``folder``."""
    path = folder / "s.toml"
    path.write_text(text)
    run_experiment(load_spec(str(path)), out=folder / name)
    with Store.read(folder / name) as store:
        return make_result(store.spec, store.results(), command="")
