"""Audits of training by two ranks over gloo; pytest starts this file as `FILE FOLDER RANK`."""

import json
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import dpaudit
from dpaudit.audit.training.loader import audit_loader
from dpaudit.codec import to_dict
from dpaudit.errors import SamplerCrashError, UsageError
from dpaudit.ranks import Ranks

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

DIM = 64
BASE, ODD = np.zeros((20, DIM)), 10.0 * np.eye(DIM)
LABELS = np.arange(DIM) % 2
KNOWS = {"score": lambda model, one: float(model @ one)}
ONE_RUN = {"mu": 1.0, "alpha": 0.05, "runs": 4}
MANY_RUNS = {"canaries": ODD[:1], "mu": 1.0, "alpha": 0.05, "runs": 400}


def here():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def reduced(array):
    if dist.is_initialized():
        dist.all_reduce(torch.from_numpy(array))
    return array


def summed(data, seed, *, noise_seed=0):
    """The clipped sum of all ranks' records, which is exact, with the same noise on every rank."""
    rank, size = here()
    own = data[rank::size]
    norms = np.maximum(1.0, np.linalg.norm(own, axis=1, keepdims=True))
    noise = np.random.default_rng([seed, noise_seed]).normal(0, 0.4, data.shape[1])
    return reduced((own / norms).sum(axis=0)) + noise


def audited(train, data=BASE, **options):
    return dpaudit.audit_training(train, data, **{"canaries": ODD, **KNOWS, **options})


def told(result):
    """All that a result says of scores, but not when, how long and of which function."""
    document = to_dict(result)
    document["provenance"] = document["provenance"]["seed"]
    return json.loads(
        json.dumps({k: v for k, v in document.items() if k not in ("seconds", "mechanism")})
    )


def private_loop(wrap):
    """Three private steps of a linear model, each rank on its records, clipped by their norms."""

    def train(data, seed):
        rank, size = here()
        x, y = (part[rank::size] for part in data)
        model = torch.nn.Linear(DIM, 2, bias=False)
        torch.nn.init.zeros_(model.weight)
        model = wrap(model)
        noise = torch.Generator().manual_seed(seed)
        for _ in range(3):
            logits = model(x)
            losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
            errors = logits.softmax(1) - torch.nn.functional.one_hot(y, 2)
            norms = (errors.norm(dim=1) * x.norm(dim=1)).detach()
            (losses / norms.clamp(min=1.0)).sum().backward()
            for p in model.parameters():
                drawn = 0.1 * torch.randn(p.shape, generator=noise)
                if hasattr(p, "device_mesh"):
                    drawn = dist.tensor.distribute_tensor(drawn, p.device_mesh, p.placements)
                with torch.no_grad():
                    p -= size * p.grad + drawn  # both kinds have the mean over ranks
                p.grad = None
        return model

    return train


def kinds():
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    return {"DDP": DistributedDataParallel, "FSDP2": fully_shard}


def trained(wrap, *, recorded=None):
    """An audit of the private loop; its losses are appended to ``recorded``."""

    def loss(model, record):
        x, y = record
        with torch.no_grad():
            value = float(torch.nn.functional.cross_entropy(model(x[None]), y[None]))
        recorded.append(value)
        return value

    data = torch.zeros(10, DIM), torch.zeros(10, dtype=torch.long)
    canaries = torch.from_numpy(ODD).float(), torch.from_numpy(LABELS)
    own = {} if recorded is None else {"loss": loss}
    options = {"mu": 1.0, "alpha": 0.05, "runs": 2, "seed": 3, **own}
    return dpaudit.audit_training(private_loop(wrap), data, canaries=canaries, **options)


def trials(rank):
    """What this rank gets of each audit that must end well."""
    calls = []
    seen = {  # the ranks give different seeds
        "one run": told(audited(summed, seed=1 + rank, **ONE_RUN)),
        "many runs": told(audited(summed, seed=1 + rank, **MANY_RUNS)),
        "none on rank 1": told(audited(lambda d, s: (summed(d, s), None)[rank], seed=1, **ONE_RUN)),
    }
    random = audited(summed, progress=lambda *at: calls.append(at), **ONE_RUN)
    seen |= {"random seed": told(random), "progress": len(calls)}
    for name, wrap in kinds().items():
        scores = []
        seen[name] = told(trained(wrap, recorded=scores))
        seen[f"{name} by default"] = told(trained(wrap))
        seen[f"{name} losses"] = scores
    return seen


def refusals(rank):
    """What this rank is told of audits that are refused, without a wait."""
    cases = {
        "drift": lambda: audited(lambda d, s: summed(d, s, noise_seed=rank), seed=1, **ONE_RUN),
        "data": lambda: audited(summed, BASE + rank, seed=1, **ONE_RUN),
        "shards": lambda: audited(summed, BASE[: 10 + rank], seed=1, **ONE_RUN),
        "options": lambda: audited(summed, seed=1, **{**ONE_RUN, "runs": 4 + rank}),
        "score": lambda: audited(summed, seed=1, **ONE_RUN, score=[KNOWS["score"], bad][rank]),
    }
    return {name: error_of(case) for name, case in cases.items()}


def bad(model, one):
    raise ValueError("no such record")


def error_of(case):
    try:
        case()
    except (SamplerCrashError, UsageError) as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]


def loaders(rank):
    """The verdicts on loaders of two ranks."""
    from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler
    from torch.utils.data import DistributedSampler

    numbers = torch.arange(200)
    own = torch.Generator().manual_seed(5 + rank)
    poisson = DistributedUniformWithReplacementSampler(
        total_size=200, sample_rate=0.1, generator=own
    )
    shuffled = DistributedSampler(numbers)

    def epochs(sampler, batches):
        for epoch in range(12):
            sampler.set_epoch(epoch)
            yield from batches(sampler)

    honest = list(epochs(poisson, list))
    shuffle = list(epochs(shuffled, lambda s: torch.tensor(list(s)).reshape(10, 10)))
    same = torch.Generator().manual_seed(5)
    twice = [(torch.rand(200, generator=same) < 0.1).nonzero().ravel() for _ in range(120)]
    asked = {"records": 200, "rate": 0.1, "seed": 1 + rank}

    def findings(batches):
        return [test.name for test in audit_loader(batches, **asked).tests if test.finding]

    return {
        "Poisson": findings(honest),
        "shuffled": findings(shuffle),
        "twice": findings(twice),
        "uneven": error_of(lambda: audit_loader(honest[rank:], **asked)),
    }


def failures(rank):
    """What ranks are told when rank 1 fails as rank 0 waits for it, and when it does not come."""

    def train(data, seed):
        if rank:
            raise ValueError("no GPU")
        return summed(data, seed)

    started = time.monotonic()
    seen = {"train": error_of(lambda: audited(train, seed=1, **ONE_RUN))}
    seen["absent"] = ["none", ""] if rank else error_of(lambda: audited(summed, **ONE_RUN))
    seen["seconds"] = time.monotonic() - started
    return seen


def too_late(rank, store):
    """The process group appears in ``train`` only."""

    def train(data, seed):
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        return summed(data, seed)

    return error_of(lambda: audited(train, seed=1, **ONE_RUN))


def work(rank, folder):
    """One rank: everything, in groups of its own; rank 0 holds the store."""
    torch.set_num_threads(1)
    port = folder / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
        (folder / "writing").write_text(str(store.port))
        (folder / "writing").rename(port)
    else:
        while not port.exists():
            time.sleep(0.05)
        store = dist.TCPStore("127.0.0.1", int(port.read_text()), 2, is_master=False)
    seen = {"too late": too_late(rank, dist.PrefixStore("late", store))}
    for parts, limit in (((trials, refusals, loaders), 120), ((failures,), 10)):
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
        store.set_timeout(timedelta(seconds=limit))  # as init_process_group does for its own
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore(parts[0].__name__, store),
            rank=rank,
            world_size=2,
            timeout=timedelta(seconds=limit),
        )
        dist.barrier()
        for part in parts:
            seen[part.__name__] = part(rank)
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))
    if rank == 0:  # the store ends with this process
        while not (folder / "seen-1.json").exists():
            time.sleep(0.05)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    pytest.importorskip("opacus")
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(folder), str(rank)], stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    try:
        said = [rank.communicate(timeout=150)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("one run", ONE_RUN), ("many runs", MANY_RUNS)])
def test_two_ranks_get_what_one_process_gets(seen, name, options):
    alone = told(audited(summed, seed=1, **options))
    assert alone["verdict"] == "finding"
    assert seen[0]["trials"][name] == seen[1]["trials"][name] == alone
    assert alone != told(audited(summed, seed=2, **options))


@pytest.mark.slow
def test_a_random_seed_is_shared_and_rank_0_alone_tells_of_progress(seen):
    first, second = (one["trials"] for one in seen)
    assert first["random seed"] == second["random seed"]
    assert (first["progress"], second["progress"]) == (ONE_RUN["runs"], 0)
    assert first["none on rank 1"] == second["none on rank 1"] == first["one run"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["DDP", "FSDP2"])
def test_a_sharded_or_replicated_model(seen, kind):
    """One process with the same scores gets the same; so does the default score."""
    first, second = (one["trials"] for one in seen)
    scores = iter(-np.reshape(first[f"{kind} losses"], (2, DIM)))
    alone = dpaudit.audit_training(
        lambda _data, _seed: next(scores),
        (np.zeros((10, DIM)), np.zeros(10)),
        canaries=(ODD, 1.0 * LABELS),
        mu=1.0,
        alpha=0.05,
        runs=2,
        seed=3,
    )
    assert first[kind] == second[kind] == first[f"{kind} by default"] == told(alone)
    assert first[kind]["verdict"] == "finding"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("drift", "of canary 0 on rank 1"),
        ("data", "give the whole data and the same options on every rank"),
        ("shards", "64 canaries, 75 records"),
        ("options", "runs=5"),
        ("score", "score raised ValueError: no such record"),
    ],
)
def test_what_differs_between_ranks_is_refused_on_all(seen, name, says):
    errors = [one["refusals"][name] for one in seen]
    assert all(says in message for _, message in errors)
    assert {kind for kind, _ in errors} == {
        "SamplerCrashError" if name == "score" else "UsageError"
    }


@pytest.mark.slow
def test_a_rank_that_fails_fails_all_within_the_timeout(seen):
    first, second = (one["failures"] for one in seen)
    assert first["train"] == ["SamplerCrashError", "rank 1 of 2: train raised ValueError: no GPU"]
    assert second["train"] == ["SamplerCrashError", "rank 1 of 2: train raised ValueError: no GPU"]
    kind, message = first["absent"]
    assert kind == "SamplerCrashError"
    assert "did not answer within the group's timeout of 0:00:10" in message
    for one in seen:
        kind, message = one["too late"]
        assert (kind, message[:13]) == ("UsageError", "world_size=2:")


@pytest.mark.slow
def test_batches_of_all_ranks_are_judged_together(seen):
    first, second = (one["loaders"] for one in seen)
    assert first == second
    assert first["Poisson"] == []
    assert {"batch sizes", "successive batches"} <= set(first["shuffled"])
    assert "records twice" in first["twice"]
    assert first["uneven"][1].startswith("batches=[119, 120]: ")


def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_the_limit():
    here = Ranks(0, 2, dist.HashStore(), "audit", timedelta(seconds=0.5))
    with pytest.raises(SamplerCrashError, match=r"did not answer within 0:00:00\.5"):
        here.exchange(lambda: b"")


def test_the_command_refuses_several_ranks(tmp_path, monkeypatch):
    from command_line import here as cli

    (tmp_path / "mine.py").write_text("def train(data, seed): pass")
    monkeypatch.setattr("dpaudit.ranks.world_size", lambda: 2)
    done = cli("training", "./mine.py:train", "--claim-mu", "1", cwd=tmp_path)
    assert (done.returncode, "world_size=2" in done.stderr) == (2, True)


if __name__ == "__main__":
    work(int(sys.argv[2]), Path(sys.argv[1]))
