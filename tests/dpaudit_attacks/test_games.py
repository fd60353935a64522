"""Every attack says which games it plays, and has what their Protocols ask for."""

from __future__ import annotations

import json

import pytest

from dpaudit import registry
from dpaudit.cli.listing import show
from dpaudit.interfaces import GAMES

ATTACKS = {
    name: p for name, p in registry.plugins("attacks").items() if p.origin.distribution == "dpaudit"
}
KEYED = {
    "batch-reader",
    "likelihood-ratio",
    "membership",
    "nearest-peak",
    "norm-reader",
    "phase-reader",
    "report-reader",
    "seed-reader",
    "topdown-reader",
    "which-bin",
}


def methods(protocol):
    return {n for n, v in vars(protocol).items() if callable(v) and not n.startswith("_")} - {
        "__init__"
    }


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_what_its_games_ask_for_and_is_read_as_it_is(name):
    factory, said = registry.load("attacks", name), registry.declared(ATTACKS[name])
    assert said["games"] == factory.games
    assert said.get("holds", "") == getattr(factory, "holds", "")
    assert (
        "key" in said.get("holds", "").split()[-1:] or "key, or none" in said.get("holds", "")
    ) == (name in KEYED)
    for game in said["games"]:
        assert methods(GAMES[game].protocol) <= set(dir(factory))
    others = [g for g in GAMES.values() if g.name not in said["games"]]
    assert not [g.name for g in others if methods(g.protocol) <= set(dir(factory))]


def test_each_game_is_another_one_and_somebody_plays_it():
    assert len({g.protocol for g in GAMES.values()}) == len(GAMES)
    assert {game for a in ATTACKS.values() for game in registry.declared(a)["games"]} == set(GAMES)


def test_the_list_says_what_each_attack_needs(capsys):
    show("attacks", "json")
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["reach"]["games"] == ["support", "scoring"]
    assert rows["reach"]["used_by"] == [
        "dpaudit mechanism --attack",
        "dpaudit attack",
        "dpaudit run",
    ]
    assert (rows["reach"]["holds"], rows["which-bin"]["holds"]) == ("nothing", "the pancake's key")
    assert [name for name, row in rows.items() if row["labels"]] == ["bit-features", "timing"]
    show("attacks", "text")
    text = capsys.readouterr().out
    for game in GAMES:
        assert f"\n{game}" in text
    assert "the pancake's key" in text
