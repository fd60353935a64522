"""`dpaudit key new` and `key show` for both kinds of key."""

import json

from command_line import here as dpaudit

from dpaudit.noise.seed_in_noise.key import SeedKey


def test_a_seed_key_is_made_shown_and_audited(tmp_path):
    made = dpaudit("key", "new", "--kind", "seed-in-noise", "--out", "s.json", cwd=tmp_path)
    assert made.returncode == 0
    assert "LAB SPECIMEN" in made.stderr
    file = tmp_path / "s.json"
    assert file.stat().st_mode & 0o777 == 0o600
    key = SeedKey.load(file)
    text = dpaudit("key", "show", "s.json", cwd=tmp_path).stdout
    assert all(part in text for part in (key.fingerprint, key.public_key, "at most 2^-39"))
    shown = json.loads(dpaudit("key", "show", "s.json", "--format", "json", cwd=tmp_path).stdout)
    assert (shown["kind"], shown["public_key"]) == ("seed-in-noise", key.public_key)
    assert key.secret.hex() not in made.stdout + made.stderr + text + json.dumps(shown)


def test_options_of_the_other_kind_are_usage_errors(tmp_path):
    for options, says in (
        (("--kind", "seed-in-noise", "--dim", 5), "takes only --out"),
        (("--kind", "seed-in-noise", "--gamma", 3), "takes only --out"),
        (("--kind", "seed-in-noise", "--beta", 0), "takes only --out"),
        (("--dim", 5), "write --beta"),
        (("--beta", 0.1), "write --dim"),
        (("--kind", "other"), "other"),
    ):
        done = dpaudit("key", "new", *options, "--out", "k.json", cwd=tmp_path)
        assert done.returncode == 2
        assert says in done.stderr
        assert not (tmp_path / "k.json").exists()


def test_a_file_of_neither_kind(tmp_path):
    (tmp_path / "k.json").write_text("{}")
    (tmp_path / "k.json").chmod(0o600)
    done = dpaudit("key", "show", "k.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "is not a dpaudit-pancake-key" in done.stderr
