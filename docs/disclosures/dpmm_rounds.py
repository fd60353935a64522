"""dpmm: AIM with fewer rounds than columns spends more than the ρ that its ε and δ allow."""

import pandas as pd
from dpmm.models import AIMGM

COLUMNS = list("abcdefgh")
DOMAIN = dict.fromkeys(COLUMNS, 2)
people = pd.DataFrame(0, index=range(100), columns=COLUMNS)
for rounds in (1, 8):
    model = AIMGM(epsilon=1.0, delta=1e-5, rounds=rounds, domain=DOMAIN, n_jobs=1)
    model.fit(people)
    aim = model.generator
    spent = sum(0.5 / sigma**2 for _, _, sigma, _ in aim.measures)
    print(f"rounds={rounds}: measured with ρ = {spent:.4f}, allowed {aim.rho:.4f}")
