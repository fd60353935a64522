"""DP-FTRL and DP-FedAvg on small images: cohorts in turn, clipped updates, correlated noise.

A run releases step by step: rows of C·X with a source's noise, then D of them. How far one person
can move C·X is its L2 sensitivity under (k, b) min-separation participation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import to_numpy
from dpaudit.protocols import Mitigation, NoiseSource, Stream
from dpaudit.queries.gradients.query import ImageQuery, positive
from dpaudit.randomness import KeyedStream
from dpaudit.training.checkpoint import Accuracy, accuracy_from_counts
from dpaudit.training.data import Images
from dpaudit.training.models import make_model
from dpaudit_deployments.ftrl.factorisation import Factorisation
from dpaudit_deployments.ftrl.factorisation import factorisation as factorise

__all__ = [
    "ClientUpdates",
    "Contribution",
    "CorrelatedRelease",
    "DpFtrl",
    "Run",
    "sensitivity",
    "shards",
]

SHARDS = ("iid", "labels")
_CHUNK = 64  # clients at a time


def shards(images: Images, *, records: int, how: str, stream: Stream) -> npt.NDArray[np.int64]:
    """Each client's record numbers, shape (clients, records); what does not fit is left out.

    ``iid``: at random. ``labels``: sorted by class and then cut, as in McMahan et al. 2017, so that
    a client has one class or two.

    Raises:
        UsageError: another ``how``, or more records per client than there are.
    """
    if how not in SHARDS:
        raise UsageError(f"shards={how}: must be {' or '.join(SHARDS)}")
    if not 1 <= records <= len(images):
        raise UsageError(f"records={records}: must lie in 1 … {len(images)}, the number of records")
    order = stream.numpy().permutation(len(images))
    if how == "labels":
        order = order[np.argsort(images.labels[order], kind="stable")]
    clients = len(images) // records
    return np.asarray(order[: clients * records].reshape(clients, records))


class ClientUpdates:
    """What clients send: their weights before less those after local training, over its rate.

    Local training is ``steps`` steps of gradient descent on all of a client's records; for one step
    the update is the gradient of their mean loss, as in FedSGD, and for one record DP-SGD's.
    """

    def __init__(self, model: nn.Module, *, steps: int, lr: float) -> None:
        """``lr`` is the rate of local training; ``model`` is not changed."""
        self._model, self._steps, self._lr = model, steps, lr
        self._names = {k: p.shape for k, p in model.named_parameters()}
        self.dim = sum(shape.numel() for shape in self._names.values())

    def weights(self) -> torch.Tensor:
        """The model's own weights as one vector (d,), float32."""
        return torch.cat([p.detach().reshape(-1) for p in self._model.parameters()])

    def logits(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """What the model says of ``x`` (b, …) with ``weights`` (d,)."""
        with torch.no_grad():
            out: torch.Tensor = functional_call(self._model, self._named(weights), (x,))
        return out

    def clipped(
        self, weights: torch.Tensor, images: Images, records: npt.NDArray[np.int64], *, clip: float
    ) -> Iterator[torch.Tensor]:
        """One row of norm at most ``clip`` per client, in order: tensors (chunk, d), float32.

        ``records`` (c, r) are the clients'. The norm is float32's, off by about 1e-6 of it.
        """
        for low in range(0, len(records), _CHUNK):
            updates = self._client_updates(weights, images, records[low : low + _CHUNK])
            norms = torch.linalg.vector_norm(updates, dim=1, keepdim=True)
            yield updates.mul_(torch.clamp(clip / norms, max=1.0))

    def _client_updates(
        self, weights: torch.Tensor, images: Images, records: npt.NDArray[np.int64]
    ) -> torch.Tensor:
        x, y = images.batch(records.reshape(-1))
        x = x.reshape(*records.shape, *x.shape[1:])
        y = y.reshape(records.shape)

        def loss(flat: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            logits = functional_call(self._model, self._named(flat), (x,))
            return functional.cross_entropy(logits, y)

        updates: torch.Tensor = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        for _ in range(self._steps - 1):
            moved = weights - self._lr * updates
            updates = updates + vmap(grad(loss))(moved, x, y)
        return updates

    def _named(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = torch.split(flat, [shape.numel() for shape in self._names.values()])
        return {
            k: part.reshape(shape)
            for (k, shape), part in zip(self._names.items(), parts, strict=True)
        }


Matrix = npt.NDArray[np.float64]


class CorrelatedRelease:
    """Takes updates one at a time and gives noisy ones, X + D·Z, as the server's optimizer does.

    Each row of C·X is released by ``mitigation`` with noise of ``source`` as soon as its last
    update is there; everything after that is public arithmetic. So any mitigation fits, secure
    aggregation among them: each party then adds its share to a row of C·X.
    """

    def __init__(
        self,
        factorisation: Factorisation,
        source: NoiseSource,
        mitigation: Mitigation,
        *,
        dim: int,
        stream: Stream,
    ) -> None:
        self._how, self._source, self._mitigation = factorisation, source, mitigation
        self._stream = stream
        self.updates = np.zeros((factorisation.steps, dim))
        """X, shape (n, d), as far as it is known."""
        self._rows = np.zeros((len(factorisation.strategy), dim))
        self.done = 0
        """Steps done."""

    def step(self, update: Matrix) -> Matrix:
        """The next noisy update (d,) for the next ``update`` (d,)."""
        t, how = self.done, self._how
        self.updates[t] = update
        for i in np.flatnonzero(how.due == t):
            query = _times(how.strategy[i], self.updates)[None]
            stream = self._stream.child("row", int(i))
            self._rows[i] = to_numpy(self._mitigation.release(query, self._source, stream=stream))
        self.done += 1
        return _times(how.decoder[t], self._rows)


def _times(weights: Matrix, rows: Matrix) -> Matrix:
    """``weights @ rows``, over the part between the first and the last weight that is not 0."""
    used = np.flatnonzero(weights)
    part = slice(used[0], used[-1] + 1)
    return np.asarray(weights[part] @ rows[part])


_ZERO = 1e-12


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The sensitivity for contributions of norm at most 1, or a bound from above."""

    value: float
    exact: bool


def sensitivity(strategy: Matrix, *, participations: int = 1, separation: int = 1) -> Sensitivity:
    """The largest ‖C·U‖ over U with at most k rows of norm ≤ 1, at least b steps apart.

    ``participations`` is k and ``separation`` b; neighbours are a person's updates or zeros.

    Formal guarantee: never below the sensitivity, for updates of any dimension, also where a
    person's later updates depend on earlier releases (Denisov et al. 2022: CᵀC without negative
    entries, or one participation). Exact for k = 1, and where columns of C that are b steps apart
    or more are orthogonal, as in a matrix of at most b bands or one restarted every b steps or
    fewer: then it is the root of the largest Σ‖c_j‖² over allowed steps (Choquette-Choo et al.
    2023, Theorem 2). Elsewhere the bound Σ_i max Σ_j |CᵀC|_ij, both over allowed steps.

    Raises:
        UsageError: k or b below 1.
    """
    for name, value in (("participations", participations), ("separation", separation)):
        if value < 1:
            raise UsageError(f"{name}={value}: must be a whole number ≥ 1")
    gram = np.abs(strategy.T @ strategy)
    steps = len(gram)
    apart = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps))) >= separation
    limit = _ZERO * float(gram.max())
    exact = participations == 1 or not bool((gram[apart] > limit).any())
    gains = np.diag(gram) if exact else _most(gram, participations, separation)
    square = _most(gains[None], participations, separation)[0]
    return Sensitivity(float(np.sqrt(square)), exact=exact)


def _most(gains: Matrix, count: int, separation: int) -> Matrix:
    """The largest sum of at most ``count`` entries of each row (r, n) that far apart, shape (r,).

    After each entry: the best of the first so many columns with one participation less.
    """
    best = np.zeros((len(gains), gains.shape[1] + 1))
    for _ in range(min(count, -(-gains.shape[1] // separation))):
        earlier = best
        best = np.zeros_like(earlier)
        for j in range(gains.shape[1]):
            sums = earlier[:, max(0, j + 1 - separation)] + gains[:, j]
            best[:, j + 1] = np.maximum(best[:, j], sums)
    largest: Matrix = best[:, -1]
    return largest


Vector = npt.NDArray[np.float64]

_ROUNDING = 1e-5  # of clipping in float32, as of ``dpsgd-step``


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one client sent: at ``steps`` (k,) the clipped ``updates`` (k, d)."""

    steps: tuple[int, ...]
    updates: Vector


@dataclass(frozen=True, eq=False)
class Run:
    """A whole training: X (n, d), the noisy updates (n, d) in float32, the weights in the end."""

    updates: Vector
    noisy: npt.NDArray[np.float32]
    weights: torch.Tensor
    contributions: dict[int, Contribution]


@dataclass(kw_only=True, eq=False, repr=False)
class DpFtrl(ImageQuery):
    """Rounds of clients in turn; row t of D·(C·X + Z) moves the model, X_t the cohort's sum.

    Clients are shuffled once and divided into cohorts, which take part one after the other, again
    and again: a client takes part k = ⌈steps / cohorts⌉ times at most, that many cohorts apart.
    Each update is clipped to L2 norm ``clip`` and summed. Neighbours: a client's updates, or zeros
    in their place, in every round (the "zero-out" of Kairouz et al. 2021).

    Formal guarantee: :attr:`sensitivity` bounds the whole run, all rows of C·X together, so noise
    of the σ that one Gaussian release needs makes the run (ε, δ)-DP; :attr:`exact` says whether it
    is met. 10⁻⁵ of it is added, as clipping in float32 may exceed the real-number bound. Not
    claimed: privacy of a schema in which clients choose when they take part.

    As a query for attacks on single rows (:meth:`neighbours`) it is the part of a row of C·X that
    one step adds, of cohorts at the first weights; attacks on whole runs use :meth:`train`.

    Raises:
        UsageError: an unknown model or factorisation, a number out of range, or data that are not
            there or of another shape.
    """

    factorisation: str = "toeplitz"
    """With ``steps``, ``bands`` and ``restart``: the arguments of
    :func:`~dpaudit_deployments.ftrl.factorisation.factorisation`."""
    steps: int = 64
    """Rounds of a run."""
    bands: int = 0
    restart: int = 0
    cohort: int = 32
    """Clients per round."""
    clients: int = 0
    """How many there are (the last few are in no cohort); 0: as many as the records allow."""
    records: int = 1
    """Records of a client."""
    shards_by: str = "iid"
    local_steps: int = 1
    local_lr: float = 0.1
    clip: float = 1.0
    lr: float = 0.5
    """The server's step is ``lr``/cohort times the noisy sum, with ``momentum``."""
    momentum: float = 0.0
    model: str = "cnn"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lr", "local_lr"):
            positive(name, getattr(self, name))
        if self.local_steps < 1 or not 0 <= self.momentum < 1:
            raise UsageError(
                f"local_steps={self.local_steps}, momentum={self.momentum}: "
                "must be at least 1, and in [0, 1)"
            )
        stream = KeyedStream.from_seed(f"dp-ftrl/{self.seed}")
        self._clients = shards(
            self.images, records=self.records, how=self.shards_by, stream=stream.child("shards")
        )
        if not 0 <= self.clients <= len(self._clients):
            raise UsageError(f"clients={self.clients}: the data have {len(self._clients)} at most")
        self._clients = self._clients[: self.clients or None]
        self.clients = len(self._clients)
        if not 1 <= self.cohort <= self.clients:
            raise UsageError(f"cohort={self.cohort}: must lie in 1 … {self.clients} clients")
        self._order = stream.child("order").numpy().permutation(self.clients)
        self.separation = self.clients // self.cohort
        self.participations = -(-self.steps // self.separation)
        self.factors = factorise(
            self.factorisation, steps=self.steps, bands=self.bands, restart=self.restart
        )
        bound = sensitivity(
            self.factors.strategy, participations=self.participations, separation=self.separation
        )
        self.strategy_sensitivity, self.exact = bound.value, bound.exact
        network = make_model(self.model, seed=self.seed)
        self._of = ClientUpdates(network, steps=self.local_steps, lr=self.local_lr)

    @property
    def dim(self) -> int:
        return self._of.dim

    @property
    def sensitivity(self) -> float:
        return self.strategy_sensitivity * self.clip * (1 + _ROUNDING)

    def cohort_at(self, step: int) -> npt.NDArray[np.int64]:
        """The clients of round ``step``, from 0, shape (cohort,)."""
        low = step % self.separation * self.cohort
        clients: npt.NDArray[np.int64] = self._order[low : low + self.cohort]
        return clients

    def train(
        self,
        source: NoiseSource,
        mitigation: Mitigation,
        *,
        stream: Stream,
        watched: tuple[int, ...] = (),
    ) -> Run:
        """A whole run; the updates of ``watched`` clients are kept."""
        release = CorrelatedRelease(self.factors, source, mitigation, dim=self.dim, stream=stream)
        weights, velocity = self._of.weights(), torch.zeros(self.dim)
        noisy = np.zeros((self.steps, self.dim), dtype=np.float32)
        watched_updates: dict[int, list[tuple[int, Vector]]] = {client: [] for client in watched}
        for t in range(self.steps):
            clients = self.cohort_at(t)
            places = np.flatnonzero(np.isin(clients, watched))
            total, low = torch.zeros(self.dim, dtype=torch.float64), 0
            for chunk in self._clipped(weights, clients):
                total += chunk.sum(0)
                for place in places[(places >= low) & (places < low + len(chunk))]:
                    update = chunk[place - low].double().numpy()
                    watched_updates[int(clients[place])].append((t, update))
                low += len(chunk)
            noisy[t] = release.step(total.numpy())
            velocity = self.momentum * velocity + torch.from_numpy(noisy[t])
            weights = weights - self.lr / self.cohort * velocity
        contributions = {
            client: Contribution(
                tuple(t for t, _ in parts),
                np.stack([u for _, u in parts]) if parts else np.empty((0, self.dim)),
            )
            for client, parts in watched_updates.items()
        }
        return Run(release.updates, noisy, weights, contributions)

    def accuracy(self, weights: torch.Tensor) -> Accuracy:
        """The share of test images that ``weights`` name right."""
        test = self.split("test")
        right = 0
        for low in range(0, len(test), 1000):
            x, y = test.batch(range(low, min(low + 1000, len(test))))
            right += int((self._of.logits(weights, x).argmax(1) == y).sum())
        return accuracy_from_counts(right, len(test))

    def neighbours(self, n: int, *, stream: Stream) -> Vector:
        """``n`` pairs (n, 2, d): what a step adds to the row of C·X that it completes.

        With all its clients, and with the updates of a random one as zeros.
        """
        rng = stream.numpy()
        pairs = np.empty((n, 2, self.dim))
        for low in range(0, n, self.cohort):
            step = int(rng.integers(self.steps))
            clipped = self._cohort(step)
            some = pairs[low : low + self.cohort]
            some[:] = clipped.sum(0)
            some[:, 1] -= clipped[rng.permutation(self.cohort)[: len(some)]]
        return pairs

    def differences(self, direction: Vector) -> Vector:
        """⟨q(D) − q(D′), direction⟩ for the first cohort and each of its clients."""
        return np.asarray(self._cohort(0) @ direction)

    def slack(self, _: Vector, /) -> float:
        """Δ: by the clipping alone, a neighbour's change may be any vector of the ball."""
        return self.sensitivity

    def _cohort(self, step: int) -> Vector:
        """A step's updates at the first weights, as they enter the row that it completes."""
        how = self.factors
        own = how.strategy[np.flatnonzero(how.due == step)[0], step]
        chunks = self._clipped(self._of.weights(), self.cohort_at(step))
        return np.asarray(torch.cat(list(chunks)).double().numpy() * own)

    def _clipped(
        self, weights: torch.Tensor, clients: npt.NDArray[np.int64]
    ) -> Iterator[torch.Tensor]:
        return self._of.clipped(weights, self.images, self._clients[clients], clip=self.clip)
