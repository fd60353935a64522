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
