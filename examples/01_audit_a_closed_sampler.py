"""Audit a sampler that you only have as a compiled library.

It is a few lines of C that claim to be Gaussian, and are not quite.
Run: python examples/01_audit_a_closed_sampler.py
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import dpaudit

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Twelve uniforms less six: the right mean, the right variance, the wrong tails;
   and every process starts from one seed. */
void twelve(double *out, size_t n, size_t d) {
    static uint64_t s = 88172645463325252ULL;
    for (size_t i = 0; i < n * d; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) {
            s ^= s << 13; s ^= s >> 7; s ^= s << 17;
            sum += (s >> 11) * 0x1p-53;
        }
        out[i] = sum;
    }
}
"""


def main() -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("no C compiler here; auditing numpy's own normal instead")
        sampler = "python:numpy.random:standard_normal"
    else:
        folder = Path(tempfile.mkdtemp())
        (folder / "noise.c").write_text(SOURCE)
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", folder / "libnoise.so", folder / "noise.c"],
            check=True,
        )
        sampler = f"library:{folder / 'libnoise.so'}:twelve"

    result = dpaudit.audit_sampler(sampler, claim="gaussian:sigma=1", samples=1_000_000, seed=1)
    print(f"{result.verdict}: {result.reason}")
    for test in result.tests[:4]:
        print(f"  {test.name:16} adjusted p {test.p_adjusted:8.2g}   {test.effect}")


if __name__ == "__main__":
    main()
