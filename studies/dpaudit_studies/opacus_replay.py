"""DP-SGD by Opacus: from the noise of one step, the batches and the noise of all later ones."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.experiments.measure import Cell, Grid, Measure
from dpaudit.experiments.trials import interval
from dpaudit.randomness import KeyedStream

if TYPE_CHECKING:
    import torch

__all__ = ["MEASURE", "OpacusReplayGrid", "Step", "measure", "summary"]

_FEWEST = (1_500, 1_750, 2_000, 2_500, 3_000, 4_000, 6_000, 8_000)
_WORDS = 624
_BLOCK = 16  # values that torch makes at a time
_CLOSE = 1e-4  # of σ: the transform in double precision compared with torch's in float32
_EXACT = 1e-3  # of the gradient's norm: float32 adds noise and gradient to seven digits

Tensors = Sequence["torch.Tensor"]


class OpacusReplayGrid(Grid, frozen=True):
    """``noise``: Opacus' own, or a source of dpaudit's in its place; the recipe."""

    noise: str
    model: str
    steps: int
    batch: int
    noise_multiplier: float
    clip: float
    delta: float
    lr: float = 0.1
    data: str = "mnist"
    data_root: str = ""
    threads: Literal[1] = 1


class Step:
    """What one step of training shows, and what it hides: its records and the sum of gradients."""

    def __init__(self, shown: Tensors, hidden: Tensors, records: npt.NDArray[np.int64]) -> None:
        """``shown``: the noisy sum per parameter; ``hidden``: the same without noise."""
        self.shown, self.hidden, self.records = shown, hidden, records


def _as_torch(twister: np.random.MT19937) -> torch.Generator:
    """A generator of torch's in the state of numpy's, which has given a word at least."""
    import torch

    inner: Any = twister.state["state"]
    generator = torch.Generator()
    state = generator.get_state().numpy().copy()
    # at::mt19937 as torch saves it: seed, words left, seeded, next word, words of 64 bits
    state[8:16].view(np.int32)[:] = _WORDS + 1 - int(inner["pos"]), 1
    state[16:24].view(np.uint64)[:] = inner["pos"]
    state[24 : 24 + 8 * _WORDS].view(np.uint64)[:] = inner["key"]
    generator.set_state(torch.from_numpy(state))
    return generator


class _Attacker:
    """Knows the recipe, the number of records, and the gradients of the first step."""

    def __init__(self, sizes: Sequence[torch.Size], *, std: float, records: int, rate: float):
        self._sizes, self._std = sizes, std
        self._records, self._rate = records, rate
        self._generator: torch.Generator | None = None
        self.seconds, self.needed = 0.0, 0

    def learn(self, step: Step) -> bool:
        """Recover the state from one step; whether the noise of its largest tensor follows."""
        started = time.process_time()
        largest = max(range(len(self._sizes)), key=lambda i: self._sizes[i].numel())
        shown, known = step.shown[largest].ravel(), step.hidden[largest].ravel()
        noise = (shown.double() - known.double()).numpy()
        # the sum, and its division by the batch's size, were rounded
        errors = 2.0**-22 * np.abs(shown.double().numpy())
        recovery: Any = registry.load("tests", "state-recovery")
        for count in (*(n for n in _FEWEST if n < len(noise)), len(noise)):
            twister = recovery.torch_state(noise[:count], std=self._std, errors=errors[:count])
            if twister is None:
                continue
            words = twister.random_raw(len(noise) + (_BLOCK if len(noise) % _BLOCK else 0))
            whole = words[: len(noise) // _BLOCK * _BLOCK].astype(np.uint32)
            predicted = recovery.torch_noise(whole, std=self._std)
            if np.abs(predicted - noise[: len(predicted)])[:-_BLOCK].max() > _CLOSE * self._std:
                continue  # some bits of the state were open
            self._generator, self.needed = _as_torch(twister), count
            for i in range(largest + 1, len(self._sizes)):
                self._normal(self._generator, i)
            break
        self.seconds = time.process_time() - started
        return self._generator is not None

    def _normal(self, generator: torch.Generator | None, i: int) -> torch.Tensor:
        import torch

        return torch.normal(0.0, self._std, self._sizes[i], generator=generator)

    def next_step(self) -> tuple[npt.NDArray[np.int64], Tensors]:
        """Records of the next batch, and its noise: the calls of Opacus, made again in order."""
        import torch

        mask = torch.rand(self._records, generator=self._generator) < self._rate
        noise = [self._normal(self._generator, i) for i in range(len(self._sizes))]
        return mask.nonzero().ravel().numpy(), noise


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` training runs; what the attacker of :class:`_Attacker` says of later steps.

    Every run starts from a fresh seed of torch's generator, which keeps its low 32 bits; the attack
    does not use that (``state_recovery/seeds.py`` does). The attacker sees every step's noisy
    gradient, and knows the gradients of the first alone. ``success``: runs in which each later
    step's gradient was read (relative error below 1e-3). ``batches``: later steps whose batch was
    named, every record of it and no other, before it was drawn. ``predicted`` of ``compared`` noise
    values are right to the last digit of float32. ``needed``: values of the first step, the largest
    number over runs; ``seconds``: CPU seconds to recover the state, the mean.

    Raises:
        SpecError: an axis that is not known or of a wrong type.
        UsageError: no data, no such model, or a rate at which an epoch has fewer steps.
    """
    del arm
    grid, trials = cell.grid(OpacusReplayGrid), cell.settings["trials"]
    stream = cell.stream
    runs = [_attack_run(grid, stream.child("run", i)) for i in range(trials)]
    read = [run for run in runs if run["error"] is not None]
    later = grid.steps - 1
    return {
        "runs": trials,
        "d": runs[0]["d"],
        "later": later,
        "success": interval(sum(run["error"] is not None for run in runs), trials),
        "batches": interval(sum(run["batches"] for run in runs), trials * later),
        "predicted": sum(run["predicted"] for run in runs),
        "compared": sum(run["compared"] for run in runs),
        "needed": max((run["needed"] for run in read), default=None),
        "seconds": math.fsum(run["seconds"] for run in runs) / trials,
        "error": max((run["error"] for run in read), default=None),
        "epsilon_claimed": runs[0]["epsilon"],
        "epsilon_attacker": math.inf if read else None,
    }


def _attack_run(grid: OpacusReplayGrid, stream: KeyedStream) -> dict[str, Any]:
    """One training run and one attack."""
    steps = _Training(grid, stream)
    shown = iter(steps)
    attacker = _Attacker(
        steps.sizes, std=grid.noise_multiplier * grid.clip, records=steps.records, rate=steps.rate
    )
    recovered = attacker.learn(next(shown))
    batches = predicted = compared = 0
    errors = []
    for step in shown:
        batch, noise = attacker.next_step() if recovered else (np.empty(0, np.int64), ())
        batches += recovered and np.array_equal(batch, np.sort(step.records))
        compared += sum(t.numel() for t in step.shown)
        off = size = 0.0
        for mine, noisy, true in zip(noise, step.shown, step.hidden, strict=False):
            truth = (noisy.double() - true.double()).numpy()
            rounding = 2.0**-22 * np.maximum(np.abs(noisy.double().numpy()), np.abs(truth))
            predicted += int((np.abs(mine.double().numpy() - truth) <= rounding).sum())
            off += float(((noisy.double() - mine.double()) - true.double()).square().sum())
            size += float(true.double().square().sum())
        errors.append(math.sqrt(off / size) if recovered and size else math.inf)
    worst = max(errors)
    return {
        "d": sum(size.numel() for size in steps.sizes),
        "batches": batches,
        "predicted": predicted,
        "compared": compared,
        "needed": attacker.needed,
        "seconds": attacker.seconds,
        "error": worst if worst < _EXACT else None,
        "epsilon": DpSgd(grid.noise_multiplier, steps.rate, grid.steps).epsilon(grid.delta),
    }


class _Training:
    """A private training by Opacus, as in its tutorial; iterating yields each :class:`Step`."""

    def __init__(self, grid: OpacusReplayGrid, stream: KeyedStream) -> None:
        import torch
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        from dpaudit.queries.opacus import use_noise_source
        from dpaudit.training.data import load_images
        from dpaudit.training.models import make_model

        self._grid = grid
        torch.set_num_threads(grid.threads)
        torch.manual_seed(int.from_bytes(stream.child("torch").bytes(8), "little") >> 1)
        images = load_images(grid.data, root=grid.data_root, split="train")
        x, y = images.batch(range(len(images)))
        # each record carries its number, so that the judge knows the batch
        data = TensorDataset(x, y, torch.arange(len(y)))
        model = make_model(grid.model)
        loader: Any = DataLoader(data, batch_size=grid.batch)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=grid.lr)
        self._model, self._optimizer, self._loader = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=grid.noise_multiplier,
            max_grad_norm=grid.clip,
        )
        if grid.noise != "opacus":
            seed = stream.child("source").bytes(16).hex()
            use_noise_source(self._optimizer, grid.noise, seed=seed)
        self.records = len(y)
        self.rate = 1 / len(loader)
        self.sizes = [p.shape for p in self._optimizer.params]

    def __iter__(self) -> Iterator[Step]:
        import torch

        for done, (x, y, numbers) in enumerate(self._loader):
            if done == self._grid.steps:
                return
            self._optimizer.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(self._model(x), y)
            loss.backward()
            self._optimizer.step()
            parameters = self._optimizer.params
            batch = self._optimizer.expected_batch_size
            yield Step(
                [p.grad * batch for p in parameters],
                [p.summed_grad.clone() for p in parameters],
                numbers.numpy(),
            )


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """In how many runs every later gradient was read."""
    return "Runs in which every later gradient was read: " + "; ".join(
        f"{row['noise']} {round(row['success']['value'] * row['runs']):,} of {row['runs']:,}"
        for row in rows
    )


MEASURE = Measure(run=measure, grid=OpacusReplayGrid, needs_arm=False, summary=summary)
