"""Notes in EVIDENCE_TRACE which files of the checkout a process runs or opens, and which packages.

Python imports this module at the start where its folder is on PYTHONPATH. Forks note in the same
file, and so do the programs that they start. Source that is only read, to hash it, is not noted.
"""

import contextlib
import os
import sys

_ROOT = os.environ.get("EVIDENCE_ROOT", "")
_PACKAGES = os.sep + "site-packages" + os.sep


def _path(event: str, args: tuple) -> str:
    """The file that an audit event of Python is about; an empty text for all others."""
    if event == "exec":  # a module, when it is imported
        return getattr(args[0], "co_filename", "")
    if event == "cpython.run_file":
        return args[0]
    if event == "open" and isinstance(args[0], str) and not args[0].endswith((".py", ".pyc")):
        return args[0]
    return ""


def _note(path: str) -> str:
    """What is noted of a path: one inside the checkout, or the top level of a package."""
    if _PACKAGES in path:
        return "package " + path.rpartition(_PACKAGES)[2].partition(os.sep)[0]
    return path.removeprefix(_ROOT + os.sep) if path.startswith(_ROOT + os.sep) else ""


def _watch(file: int) -> None:
    seen = {""}

    def hook(event: str, args: tuple) -> None:
        path = _path(event, args)
        if path not in seen:
            seen.add(path)
            if note := _note(os.path.abspath(path)):
                os.write(file, (note + "\n").encode("utf-8", "surrogateescape"))

    sys.addaudithook(hook)


if _ROOT:
    with contextlib.suppress(OSError):  # a sandbox: nothing may be written
        _watch(os.open(os.environ["EVIDENCE_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
