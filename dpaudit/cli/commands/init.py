"""``dpaudit init``: dpaudit as a gate of somebody else's project."""

from __future__ import annotations

import json
import re
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from dpaudit.cli.options import with_shared_options
from dpaudit.cli.output import emit, note
from dpaudit.errors import UsageError
from dpaudit.options import Argument, Option

__all__ = ["init"]

_FILES = {
    "github": {
        ".github/actions/dpaudit/action.yml": "github/action.yml",
        ".github/workflows/dpaudit.yml": "github/workflow.yml",
    },
    "gitlab": {".gitlab/dpaudit.yml": "gitlab/dpaudit.yml"},
    "pytest": {"tests/test_noise.py": "pytest/test_noise.py"},
}
_PACKAGE = "git+https://HOST/OWNER/dpaudit@COMMIT"
_EDIT = (
    "the sampler and its claim, the mechanism, its neighbours and its claim; remove what you do "
    "not have"
)
_NEXT = {
    "github": f"Edit .github/workflows/dpaudit.yml: {_EDIT}.",
    "gitlab": (
        f"Edit .gitlab/dpaudit.yml: {_EDIT}.\n"
        "Add to .gitlab-ci.yml:\n  include:\n    - local: .gitlab/dpaudit.yml"
    ),
    "pytest": (
        "Edit tests/test_noise.py: put your sampler, your mechanism and their claims in.\n"
        "Run: pytest tests/test_noise.py"
    ),
}


@with_shared_options
def init(
    kind: Annotated[
        Literal["github", "gitlab", "pytest"], Argument("github, gitlab or pytest.", "KIND")
    ],
    force: Annotated[bool, Option("Replace files that are there.")] = False,
) -> None:
    """Write a gate into this folder: CI fails if the noise is not what it claims.

    github writes an action and a workflow that audit a sampler and a mechanism
    before a release. gitlab writes two jobs for merge requests. pytest writes
    tests/test_noise.py with the fixture that comes with dpaudit.

    Then says what to edit. Nothing is overwritten without --force.

    [bold]Examples[/bold]

    $ dpaudit init pytest
    $ dpaudit init github --force
    """
    source = files("dpaudit") / "ci_templates"
    texts = {
        Path(target): (source / name).read_text(encoding="utf-8")
        for target, name in _FILES[kind].items()
    }
    there = next((path for path in texts if path.exists() or path.is_symlink()), None)
    if there is not None and not force:
        raise UsageError(f"file={there}: is there already; --force replaces it")
    package = _installed_from()
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(_PACKAGE, package), encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"file={path}: cannot be written ({error.strerror}); go to a folder of your own"
            ) from error
        emit(str(path))
    steps = [_NEXT[kind]]
    if package == _PACKAGE and any(_PACKAGE in text for text in texts.values()):
        steps.append(
            f"Replace {_PACKAGE}: dpaudit is on no package index yet, so name\n"
            "its repository and commit, or a checkout that your repository contains (./dpaudit)."
        )
    steps.append("Every exit code but 0 closes the gate; 3 (inconclusive) is not a pass.")
    note("\n".join(steps))


def _installed_from() -> str:
    """What pip can install this dpaudit from elsewhere, if it came from a repository."""
    try:
        text = metadata.distribution("dpaudit").read_text("direct_url.json")
        origin = json.loads(text or "{}")
        kind, commit = origin["vcs_info"]["vcs"], origin["vcs_info"]["commit_id"]
    except (metadata.PackageNotFoundError, KeyError, TypeError, ValueError):
        return _PACKAGE
    package = f"{kind}+{origin['url']}@{commit}"
    return package if re.fullmatch(r"[\w+:/@.~%-]+", package) else _PACKAGE
