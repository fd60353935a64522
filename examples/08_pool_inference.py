"""Half a year of emoji through Apple's Count Mean Sketch, one a day.

What does a server that keeps them learn of skin tones? Real emoji (Unicode 11.0) with the
popularity that Twitter gave them; the people are made up. Each report is 4-differentially private.
Gadotti et al., USENIX Security 2022.
Run: python examples/08_pool_inference.py
"""

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.pool_inference.attack import PoolInference
from dpaudit_local.pool_inference.evidence import evidence_for
from dpaudit_local.pool_inference.game import people
from dpaudit_local.pool_inference.popularity import estimate_popularity
from dpaudit_local.pool_inference.posterior import pool_posterior
from dpaudit_local.pool_inference.settings import load_setting, tones_of

DAYS, USERS = (1, 7, 30, 60, 90, 180), 2000
setting, stream = load_setting("real-emoji"), KeyedStream.from_seed(8)

# 1. One person: 60 % of their emoji have a tone, 90 % of those the same one.
# The device sends a noisy sketch of each.
person = people(setting, 1, DAYS[-1], stream=stream.child("person"), gamma=0.6, delta=0.9)
emoji = [
    "".join(chr(int(point, 16)) for point in codepoints.split("-")) for codepoints in tones_of()[0]
]
print("a week of theirs:", " ".join(emoji[i] for i in person.objects[0, :7]))
sketch = CountMeanSketch(epsilon=4.0)
reports = sketch.privatize(person.objects[0].astype(np.int64), stream=stream.child("device"))
ones = int(np.unpackbits(reports.bits[0]).sum())
print(
    f"what the server gets of the first: function {reports.function[0]}, "
    f"{ones} of {sketch.m} bits set, most of them noise"
)

# 2. The server knows how popular emoji are from a million reports of others,
# and adds up what each report tells.
popularity = estimate_popularity(sketch, setting.popularity, stream=stream.child("others"))
evidence = evidence_for(sketch, setting.pools, popularity)(reports)
posterior = pool_posterior(evidence[None], prefixes=DAYS)[0]
for day, tones in zip(DAYS, posterior, strict=True):
    likely = setting.labels[int(tones.argmax())]
    print(f"day {day:3}: {likely:12} {tones.max():7.2%}  {'#' * round(40 * tones.max())}")
print(f"the truth: {setting.labels[int(person.preferred[0])]}")

# 3. Many people, each with their own habits: the guess is one in six.
# AUC-PN averages precision over how many are left out.
for epsilon, adversaries in ((4.0, ("weak", "strong", "non-private")), (1.0, ("weak", "strong"))):
    game = PoolInference(
        setting="real-emoji", epsilon=epsilon, adversaries=adversaries, observations=(7, 60, 180)
    )
    outcomes = game.outcomes(USERS, stream=stream.child("game"))
    for adversary, found in outcomes.items():
        areas = "  ".join(f"{n} days {outcome.auc_pn():.2f}" for n, outcome in found.items())
        print(f"epsilon {epsilon:g}, {adversary:11} AUC-PN: {areas}")
    if epsilon == 4.0:
        strong = outcomes["strong"][180]

# 4. Its confidence is calibrated: how many of those named with it are named right.
for low, high in ((0, 0.5), (0.5, 0.9), (0.9, 1.01)):
    some = (strong.confidence >= low) & (strong.confidence < high)
    said, right = strong.confidence[some].mean(), strong.correct[some].mean()
    print(
        f"epsilon 4, strong: {some.sum():4} people named with {said:.0%} confidence on average, "
        f"{right:.0%} of them right"
    )
