# mypy: ignore-errors
# ruff: noqa: D103, S608 (a program that is run, on queries of its own)
"""python normal.py METHOD SEED: Python's library, numpy, torch and SQL engines."""

import random
import sqlite3
import statistics
import sys
from array import array

running = __name__ == "__main__"
method, seed = (sys.argv[1], int(sys.argv[2])) if running else ("", 0)


def one_by_one(draw):
    return lambda n: array("d", (draw() for _ in range(n))).tobytes()


def numpy_generator(name, dtype):
    import numpy as np

    rng = np.random.Generator(getattr(np.random, name)(seed))
    return lambda n: rng.standard_normal(n, dtype=dtype).astype("f8").tobytes()


def numpy_legacy():
    import numpy as np

    state = np.random.RandomState(seed)
    return lambda n: state.standard_normal(n).tobytes()


def torch_normal(dtype):
    import torch

    torch.manual_seed(seed)
    return lambda n: torch.randn(n, dtype=getattr(torch, dtype)).double().numpy().tobytes()


def jax_normal():
    import jax
    import numpy as np

    state = [jax.random.key(seed)]

    def draw(n):
        state[0], key = jax.random.split(state[0])
        return np.asarray(jax.random.normal(key, (n,)), dtype="f8").tobytes()

    return draw


BOX_MULLER = "sqrt(-2 * ln({u})) * cos(2 * pi() * {v})"


def sqlite():
    u = "(random() / 18446744073709551616.0 + 0.5)"
    rows = "with recursive r(i) as (select 1 union all select i + 1 from r where i < ?)"
    query = f"{rows} select {BOX_MULLER.format(u=u, v=u)} from r"
    base = sqlite3.connect(":memory:")
    base.execute("select ln(0.5), cos(0), pi()")
    return lambda n: array("d", (x for (x,) in base.execute(query, (n,)))).tobytes()


def duckdb():
    import duckdb as engine

    base = engine.connect()
    base.execute(f"select setseed({(seed % 1000) / 1000})")
    query = f"select {BOX_MULLER.format(u='1 - random()', v='random()')} as x from range(?)"
    return lambda n: base.execute(query, [n]).fetchnumpy()["x"].astype("f8").tobytes()


def start():
    random.seed(seed)
    if method in ("gauss", "normalvariate"):
        draw = getattr(random, method)
        return one_by_one(lambda: draw(0.0, 1.0))
    if method == "NormalDist":
        return lambda n: array("d", statistics.NormalDist().samples(n)).tobytes()
    if method.startswith("torch."):
        return torch_normal(method.removeprefix("torch."))
    if method == "numpy.RandomState":
        return numpy_legacy()
    if method.startswith("numpy."):
        name, _, dtype = method.removeprefix("numpy.").partition("/")
        return numpy_generator(name, dtype or "f8")
    return {"jax": jax_normal, "sqlite3": sqlite, "duckdb": duckdb}[method]()


if running:
    draw = start()
    for line in sys.stdin:
        sys.stdout.buffer.write(draw(int(line)))
        sys.stdout.buffer.flush()
