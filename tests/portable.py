"""The numerical tests in several environments, with their numbers compared. `make portable`.

For each environment one line: what pytest counted, and seconds. Then for each quantity the largest
relative difference between any two environments, and for bytes (``bits``) who has the same: a
processor without fused multiply-add may round otherwise. Exit 1 if a test failed or a difference is
above the one allowed here.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# about a minute of CPU time: what calls BLAS, LAPACK, torch or a compiled loop
NUMERICAL = [
    *(f"tests/dpaudit/accounting/test_{name}.py" for name in ("composition", "mechanisms")),
    *(
        f"tests/dpaudit_local/mechanisms/test_{name}.py"
        for name in ("conformance", "count_mean_server", "rappor", "rappor_decoding")
    ),
    "tests/dpaudit/numeric/test_conditioning.py",
    *(f"tests/dpaudit/noise/test_{name}.py" for name in ("floating_point", "key", "pancake")),
    *(f"tests/dpaudit/test_{name}.py" for name in ("stats", "randomness", "claims")),
    *(
        f"tests/dpaudit_attacks/test_{name}.py"
        for name in ("keyed_distinguisher", "reconstruction")
    ),
    "tests/dpaudit_local/pool_inference/test_posterior.py",
    "tests/dpaudit/audit/battery/test_battery.py",
    "tests/dpaudit/queries/test_step.py",
    "tests/dpaudit_mitigations/rotation/test_rotations.py",
]
TEXT = [  # what reads and writes text, files and dates
    "tests/dpaudit/test_claims.py",
    "tests/dpaudit/noise/test_key.py",
    "tests/dpaudit/results",
    "tests/dpaudit/render",
    "tests/dpaudit/experiments/test_spec.py",
    "tests/dpaudit/experiments/test_store.py",
    "tests/dpaudit/cli/test_runs.py",
]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
SET = (
    "OPENBLAS_CORETYPE", "NUMBA_CPU_NAME", "ATEN_CPU_CAPABILITY", "PYTHONHASHSEED", "LANG", "TZ",
    *THREADS,
)  # fmt: skip


def one(number: int) -> dict[str, str]:
    return dict.fromkeys(THREADS, str(number))


ENVIRONMENTS = {
    **{
        name.lower(): {"OPENBLAS_CORETYPE": name, **one(threads)}
        for name, threads in (
            ("Haswell", 1),
            ("Zen", 2),
            ("SkylakeX", 1),
            ("Sandybridge", 2),
            ("Prescott", 1),
        )
    },
    "numba generic": {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "PYTHONHASHSEED": "1",
        **one(2),
    },
    "torch default": {"ATEN_CPU_CAPABILITY": "default", "PYTHONHASHSEED": "2", **one(1)},
    "torch avx2": {"ATEN_CPU_CAPABILITY": "avx2", "PYTHONHASHSEED": "3", **one(2)},
    "surroundings": {  # a locale without UTF-8, a home that is no folder, a clock 14 hours ahead
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "HOME": "/dev/null",
        "TZ": "Pacific/Kiritimati",
        "PYTHONHASHSEED": "random",
        **one(1),
    },
}
ALLOWED = 1e-9  # relative, for numbers that are not bits


def measured() -> dict[str, object]:
    """Numbers that a user would compare between two machines."""
    import numpy as np
    import torch

    from dpaudit.accounting import pancake_epsilon
    from dpaudit.noise.gaussian import Gaussian
    from dpaudit.noise.key import PancakeKey
    from dpaudit.noise.pancake import Pancake
    from dpaudit.randomness import KeyedStream
    from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio
    from dpaudit_local.mechanisms.rappor import Rappor, RapporServer
    from dpaudit_local.mechanisms.rappor_decoding import decode

    stream = KeyedStream.from_seed("portable")
    key = PancakeKey.new(dim=4096, beta=1e-2, gamma="2sqrtd", secret=stream.child("key").bytes(32))
    source = Pancake(key=key, sigma=2.0)
    pairs = torch.zeros(1, 2, 4096, dtype=torch.float64)
    pairs[0, 1, 7] = 1.0
    noise = {
        "gaussian": Gaussian(sigma=2.0).sample(
            20, 4096, stream=stream.child("gaussian"), dtype=torch.float64
        ),
        "pancake": source.sample(20, 4096, stream=stream.child("pancake"), dtype=torch.float64),
    }
    server = RapporServer(mechanism := Rappor(bits=64, cohorts=2000, seed=1))
    people = np.repeat(np.arange(6), [600, 300, 200, 150, 120, 130])
    server.add(mechanism.privatize(people, stream=stream.child("rappor")))
    decoded = decode(server, np.arange(150))
    return {
        "bits of a key": hashlib.sha256(key.vectors.tobytes()).hexdigest(),
        "bits of RAPPOR's reports": hashlib.sha256(server.counts.tobytes()).hexdigest(),
        **{
            f"bits of {name} noise": hashlib.sha256(x.numpy().tobytes()).hexdigest()
            for name, x in noise.items()
        },
        "gaussian noise": noise["gaussian"].flatten().tolist(),
        "pancake noise": noise["pancake"].flatten().tolist(),
        "scores with the key": LikelihoodRatio(key=key, sigma=2.0)
        .score(noise["pancake"], pairs)
        .flatten()
        .tolist(),
        "strings that RAPPOR's reports hold": decoded.candidates.tolist(),
        "their counts": decoded.estimate.tolist(),
        "standard errors": decoded.standard_error.tolist(),
        "exact ε": [
            pancake_epsilon(1e-6, sigma=1.0, beta=b, gamma=32.0, along=0.1, across=0.9).value
            for b in (1e-3, 0.5)
        ],
        "basis of a key": key.basis.flatten().tolist(),
    }


def compare(found: dict[str, dict[str, object]]) -> bool:
    """Print the largest difference of each quantity; whether all are allowed."""
    import numpy as np

    fine = True
    for name, first in next(iter(found.values())).items():
        others = [numbers[name] for numbers in found.values()]
        if isinstance(first, str):
            groups = [
                [env for env in found if found[env][name] == value]
                for value in dict.fromkeys(map(str, others))
            ]
            same = len(groups) == 1
            print(
                f"{name}: {'the same' if same else 'differ: ' + ' | '.join(map(', '.join, groups))}"
            )
            continue
        values = [np.array(other) for other in others]
        if len({len(v) for v in values}) > 1:
            print(f"{name}: differ in number")
            fine = False
            continue
        size = max(float(np.abs(values[0]).max()), 1e-300)
        most = max(float(np.abs(v - values[0]).max()) for v in values) / size
        print(f"{name}: at most {most:.1e} of the largest")
        fine = fine and most <= ALLOWED
    return fine


def run(name: str) -> tuple[str, bool, str, dict[str, object]]:
    own = {k: v for k, v in os.environ.items() if k not in SET}
    environment = {
        **own,
        **ENVIRONMENTS[name],
        "PYTHONPATH": os.pathsep.join(["attacks", "mitigations", "extensions", "studies"]),
    }
    started = time.monotonic()
    tests = TEXT if name == "surroundings" else NUMERICAL
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace", env=environment
    )
    seconds = time.monotonic() - started
    said = ended.stdout
    last = next(
        (line for line in reversed(said.splitlines()) if " passed" in line or " failed" in line),
        "no result",
    )
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    show = subprocess.run(
        [sys.executable, __file__, "measure"], capture_output=True, text=True, env=environment
    )
    numbers = json.loads(show.stdout) if show.returncode == 0 else {}
    lines = [f"{name:16} {last} in {seconds:.0f} s", *failed, *([] if numbers else [show.stderr])]
    return name, ended.returncode == 0 and bool(numbers), "\n".join(lines), numbers


def main() -> int:
    if sys.argv[1:] == ["measure"]:
        print(json.dumps(measured()))
        return 0
    names = [n for n in ENVIRONMENTS if not sys.argv[1:] or n in sys.argv[1:]]
    fine, found = True, {}
    with ThreadPoolExecutor(2) as pool:
        for name, good, line, numbers in pool.map(run, names):
            print(line, flush=True)
            fine, found[name] = fine and good, numbers
    return 0 if compare({k: v for k, v in found.items() if v}) and fine else 1


if __name__ == "__main__":
    sys.exit(main())
