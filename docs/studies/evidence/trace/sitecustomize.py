"""Notes each file of the checkout and each package that a process reads, in EVIDENCE_TRACE.

Python imports this module at the start where its folder is on PYTHONPATH. Forks note in the same
file, and so do the programs that they start.
"""

import contextlib
import os
import sys

_ROOT = os.environ.get("EVIDENCE_ROOT", "")
_PACKAGES = os.sep + "site-packages" + os.sep


def _note(path: str) -> str:
    """What is noted of a path: one inside the checkout, or the top level of a package."""
    if _PACKAGES in path:
        return "package " + path.rpartition(_PACKAGES)[2].partition(os.sep)[0]
    if not path.startswith(_ROOT + os.sep):
        return ""
    folder, _, name = path.rpartition(os.sep)
    if name.endswith(".pyc"):  # the source of what was compiled before
        path = os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")
    return path[len(_ROOT) + 1 :]


def _watch(file: int) -> None:
    seen = set()

    def hook(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[0], str) and args[0] not in seen:
            seen.add(args[0])
            note = _note(os.path.abspath(args[0]))
            if note and note not in seen:
                seen.add(note)
                os.write(file, (note + "\n").encode("utf-8", "surrogateescape"))

    sys.addaudithook(hook)


if _ROOT:
    with contextlib.suppress(OSError):  # a sandbox: nothing may be written
        _watch(os.open(os.environ["EVIDENCE_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
