"""``python main.py``: starts the server in any Python with numpy; dpaudit need not be there."""

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    for _name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
    ):
        os.environ[_name] = "1"  # forks, and sums that do not depend on the number of threads
    _spec = importlib.util.spec_from_file_location(
        "dpaudit_replay", f"{_HERE}/__init__.py", submodule_search_locations=[_HERE]
    )
    _package = importlib.util.module_from_spec(_spec)  # type: ignore[arg-type]
    sys.modules["dpaudit_replay"] = _package
    _spec.loader.exec_module(_package)  # type: ignore[union-attr]
    from dpaudit_replay.server import serve  # type: ignore[import-not-found]

    serve()
