"""Which studies there are: `plan.toml`, and the experiments that it names."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.code import ROOT

__all__ = ["RESULTS", "Study", "chosen", "plan"]

RESULTS = ROOT / "docs" / "studies" / "results"
PLAN = Path(__file__).with_name("plan.toml")
SPECS = ROOT / "studies" / "dpaudit_studies" / "specs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A row of the plan: commands that a shell runs in the checkout, and what they leave.

    ``{out}`` in a command is a folder of its own below ``runs/``, ``{results}`` its folder in
    ``docs/studies/results/``, ``{envs}`` the environments of ``DPAUDIT_ENVS``. ``files`` are what
    the commands leave in either folder; ``minutes`` are of CPU, as they were measured.
    What is ``alone`` has time limits or measures time, and runs beside no other study.
    """

    name: str
    minutes: float
    run: tuple[str, ...]
    files: tuple[str, ...] = ("results.json",)
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    gpu: bool = False
    alone: bool = False

    @property
    def results(self) -> Path:
        """Its folder of results."""
        return RESULTS / self.name

    @property
    def out(self) -> Path:
        """Its working folder, which is not kept in git."""
        return ROOT / "runs" / "evidence" / self.name

    def commands(self) -> tuple[str, ...]:
        """Its commands, as a shell takes them."""
        places = {"{out}": self.out, "{results}": self.results, "{envs}": _environments()}
        commands = self.run
        for place, folder in places.items():
            commands = tuple(one.replace(place, str(folder)) for one in commands)
        return commands

    def missing(self) -> Iterator[str]:
        """What it needs that this machine does not have, named."""
        if self.gpu and not _gpu():
            yield "a GPU"
        yield from (name for name in self.programs if shutil.which(name) is None)
        yield from (f"module {one}" for one in self.modules if not importlib.util.find_spec(one))
        yield from (f"variable {name}" for name in self.variables if not os.environ.get(name))
        for name in self.environments:
            folder = _environments() / name
            if not (folder / ".ready").exists():
                begun = " (half made: make envs goes on)" if folder.exists() else ""
                yield f"environment {name}{begun}"
        data = os.environ.get("DPAUDIT_DATA", "")
        for name in self.data if data else ():
            if not Path(data, name).exists():
                yield f"{name} in DPAUDIT_DATA"


def _environments() -> Path:
    return Path(os.environ.get("DPAUDIT_ENVS") or ROOT / ".envs").resolve()


def _gpu() -> bool:
    if not importlib.util.find_spec("torch"):
        return False
    import torch

    return torch.cuda.is_available()


def plan() -> list[Study]:
    """Every study, cheapest first.

    Raises:
        SystemExit: a row that cannot be used.
    """
    table = tomllib.loads(PLAN.read_text(encoding="utf-8"))
    studies = [_study(name, row) for name, row in table.items()]
    return sorted(studies, key=lambda study: (study.minutes, study.name))


def _study(name: str, row: dict[str, object]) -> Study:
    known: dict[str, object] = {"run": (f"dpaudit run {name} --out {{out}} --resume",)}
    known |= {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    if "minutes" not in row:
        spec = SPECS / f"{name}.toml"
        if not spec.exists():
            raise SystemExit(f"{PLAN.name}: [{name}] has no minutes, and there is no {spec.name}")
        known["minutes"] = tomllib.loads(spec.read_text(encoding="utf-8"))["minutes"]
    try:
        return Study(name=name, **known)  # type: ignore[arg-type]
    except TypeError as error:
        raise SystemExit(f"{PLAN.name}: [{name}]: {error}") from error


def chosen(names: list[str]) -> list[Study]:
    """The studies of these names, or all.

    Raises:
        SystemExit: a name that is not in the plan.
    """
    studies = plan()
    unknown = sorted(set(names) - {study.name for study in studies})
    if unknown:
        raise SystemExit(f"study={unknown[0]}: not in {PLAN.name}; make evidence-status lists them")
    return [study for study in studies if not names or study.name in names]
