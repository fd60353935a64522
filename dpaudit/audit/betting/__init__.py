"""Bets against a claim while an audit draws, so that it may stop at any time.

Each bet is a test martingale (Ville 1939): it starts with a capital of 1 and is fair under the
claim, so E[capital at any stopping time] ≤ 1 and the capital ever reaches 1/α with probability at
most α. See Ramdas, Grünwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe
anytime-valid inference". :mod:`~dpaudit.audit.betting.noise` bets on single values of noise,
:mod:`~dpaudit.audit.betting.releases` on releases at two neighbours.
"""
