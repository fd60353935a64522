"""An experiment of a few seconds, from the text of its specification to its document."""

from __future__ import annotations

from pathlib import Path

from dpaudit.experiments import Store, load_spec, make_document, run_experiment


def document(text: str, folder: Path, name: str = "out"):
    """Run the experiment that ``text`` describes in ``folder``."""
    path = folder / "s.toml"
    path.write_text(text)
    run_experiment(load_spec(str(path)), out=folder / name)
    with Store.read(folder / name) as store:
        return make_document(store.spec, store.results(), command="")
