"""Flower's plain round and its SecAgg+ round, timed.

Run by the python of Flower's own environment (`make envs`). The leanest honest way to run Flower's
own code: its workflows, strategy, `ClientApp` and client mod, in one process, with a grid that
hands each message to the client app as an object. No network, no serialization of messages, no ray:
all of that would only add to Flower's time. Its `ndarray_to_bytes` and the like stay, for they are
part of the round. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import resource
import time
from collections.abc import Iterable
from copy import deepcopy
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client import Client, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.server_config import ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.server.workflow.default_workflows import default_fit_workflow
from flwr.serverapp.grid import Grid
from flwr.supercore.task_identity import TaskIdentity

CLIP, LEVELS = 1.0, 2**22


class Fixed(NumPyClient):
    """A client whose update is ready; one example, so that a weighted mean is the mean."""

    def __init__(self, update: np.ndarray) -> None:
        self.update = update

    def fit(self, parameters, config):
        return [self.update], 1, {}


class Direct(Grid):
    """Calls the client apps in turn, in this process."""

    def __init__(self, updates: list[np.ndarray], mods: list) -> None:
        def client(context: Context) -> Client:
            return Fixed(updates[context.node_id - 1]).to_client()

        self.app = ClientApp(client, mods=mods)
        self.contexts = {
            i + 1: Context(0, i + 1, {}, RecordDict(), {}) for i in range(len(updates))
        }

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        replies = []
        for message in messages:
            message.content = deepcopy(
                message.content
            )  # small; the workflow gives all clients one object, the mod eats it
            replies.append(self.app(message, self.contexts[message.metadata.dst_node_id]))
        return replies

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    @property
    def run(self):
        return SimpleNamespace(run_id=0)

    def set_run(self, run) -> None: ...
    def create_message(self, *args, **kwargs): ...
    def push_messages(self, messages): ...
    def pull_messages(self, message_ids): ...


def one_round(workflow, updates: list[np.ndarray], mods: list) -> tuple[float, float, np.ndarray]:
    """Seconds of a round by the clock and of the processor, and the mean it ends with."""
    grid, manager = Direct(updates, mods), SimpleClientManager()
    for node in grid.get_node_ids():
        manager.register(GridClientProxy(node_id=node, grid=grid, run_id=0))
    state = RecordDict()
    state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord(
        {Key.CURRENT_ROUND: 1, Key.START_TIME: 0.0}
    )
    start = ndarrays_to_parameters(
        [np.zeros(1, np.float32)]
    )  # the model that goes out is small: that favours Flower too
    state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, True)
    everyone = len(updates)
    strategy = FedAvg(
        fraction_fit=1.0, min_fit_clients=everyone, min_available_clients=everyone, inplace=True
    )
    context = LegacyContext(
        Context(0, 0, {}, state, {}), ServerConfig(num_rounds=1), strategy, manager
    )
    began, used = time.perf_counter(), time.process_time()
    workflow(grid, context)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    found = compat.arrayrecord_to_parameters(
        context.state.array_records[MAIN_PARAMS_RECORD], keep_input=True
    )
    return seconds, processor, parameters_to_ndarrays(found)[0]


def updates_of(clients: int, dim: int, seed: int) -> list[np.ndarray]:
    """Float32 in [-1, 1)."""
    return [
        np.random.default_rng([seed, i]).random(dim, np.float32) * 2 - 1 for i in range(clients)
    ]


def main() -> None:
    """Both rounds; JSON on stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--threshold", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    # what its launcher would say
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    updates = updates_of(given.clients, given.dim, given.seed)
    result = {"flwr": version("flwr"), "numpy": np.__version__, "python": platform.python_version()}
    secagg = SecAggPlusWorkflow(
        num_shares=given.clients,
        reconstruction_threshold=given.threshold,
        max_weight=1.0,  # of one example: all 22 bits are the update's
        clipping_range=CLIP,
        quantization_range=LEVELS,
    )
    for name, workflow, mods in (
        ("plain", default_fit_workflow, []),
        ("secagg+", secagg, [secaggplus_mod]),
    ):
        seconds, processor, mean = one_round(workflow, updates, mods)
        assert mean.shape == (given.dim,), f"{name}: no result"
        worst = 0.0
        for at in range(0, given.dim, 1 << 20):
            true = np.mean([u[at : at + (1 << 20)].astype(np.float64) for u in updates], axis=0)
            worst = max(worst, float(np.abs(mean[at : at + (1 << 20)] - true).max()))
        result[name] = {"seconds": seconds, "processor": processor, "worst_error": worst}
        del mean
    result["level"] = 2 * CLIP / LEVELS
    result["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(result))


if __name__ == "__main__":
    main()
