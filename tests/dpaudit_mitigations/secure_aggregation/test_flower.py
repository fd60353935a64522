"""Our masking in Flower's own rounds. Needs flwr in its own environment: ``make flower``."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.server_config import ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity

from dpaudit.errors import DpauditError, MessageError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.flower import (
    _RECORD,
    MaskedMeanWorkflow,
    MaskingMod,
    Member,
)
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms

SHAPES = [(3, 4), (5,)]
LENGTH = 17


class Nodes:
    """A grid of nodes in this process; ``lost`` maps a node to the stage where it goes away."""

    run = SimpleNamespace(run_id=7)

    def __init__(self, count=4, *, sigma=0.0, **terms):
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
        names = [f"node-{i}" for i in range(1, count + 1)]
        keys = {n: new_signing_key(KeyedStream.from_seed("flower").child(n)) for n in names}
        self.roster = {n: public_bytes(k) for n, k in keys.items()}
        given = {"round": "flower", "threshold": 3, "length": LENGTH, "bound": 10.0, "sigma": sigma}
        self.terms = RoundTerms(parties=tuple(names), **given | terms)
        rng = np.random.default_rng(3)
        self.updates = {
            i: [rng.integers(-9, 9, s).astype(np.float32) for s in SHAPES]
            for i in range(1, count + 1)
        }
        self.contexts = {
            i: Context(7, i, {"name": f"node-{i}"}, RecordDict(), {}) for i in self.updates
        }
        self.lost, self.errors, self.seen = {}, {}, []

        def member(context):
            name = context.node_config["name"]
            return Member(name=name, signing_key=keys[name], roster=self.roster, terms=self.terms)

        self.mod = MaskingMod(member)

        def client(context):
            class Fixed(NumPyClient):
                def fit(_, parameters, config):
                    return self.updates[context.node_id], 10 * context.node_id, {"loss": 0.5}

            return Fixed().to_client()

        self.app = ClientApp(client, mods=[self.mod])

    def send_and_receive(self, messages, *, timeout=None):
        out = []
        for message in messages:
            node = message.metadata.dst_node_id
            stage = message.content.config_records[_RECORD]["stage"]
            if self.lost.get(node) == stage:
                continue
            message.content = deepcopy(message.content)
            self.contexts[node] = deepcopy(self.contexts[node])  # as if in another process
            try:
                reply = self.app(message, self.contexts[node])
            except DpauditError as error:
                self.errors[node] = error
                reply = Message(Error(0, "refused"), reply_to=message)
            self.seen.append((node, stage, reply))
            out.append(reply)
        return out

    def get_node_ids(self):
        return list(self.contexts)

    def round(self, number=1, workflow=None):
        """The model after one round, or None if it stays."""
        manager = SimpleClientManager()
        for node in self.contexts:
            manager.register(GridClientProxy(node_id=node, grid=self, run_id=7))
        state = RecordDict(
            {MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: number, Key.START_TIME: 0.0})}
        )
        start = ndarrays_to_parameters([np.full(s, -1, np.float32) for s in SHAPES])
        state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, True)
        strategy = FedAvg(fraction_fit=1.0, min_fit_clients=1, min_available_clients=1)
        context = LegacyContext(
            Context(7, 0, {}, state, {}), ServerConfig(num_rounds=1), strategy, manager
        )
        (workflow or MaskedMeanWorkflow(self.terms, roster=self.roster))(self, context)
        found = parameters_to_ndarrays(
            compat.arrayrecord_to_parameters(
                context.state.array_records[MAIN_PARAMS_RECORD], keep_input=True
            )
        )
        return None if (found[0] == -1).all() else found

    def mean(self, nodes):
        return [
            np.mean([self.updates[i][j] for i in nodes], axis=0, dtype=np.float64)
            for j in range(len(SHAPES))
        ]


def close(found, expected):
    return all(
        np.allclose(a, b, atol=1e-5) and a.shape == b.shape
        for a, b in zip(found, expected, strict=True)
    )


def test_the_mean_of_all_for_two_rounds():
    nodes = Nodes()
    for number in (1, 2):
        assert close(nodes.round(number), nodes.mean([1, 2, 3, 4]))
    assert nodes.errors == {}


@pytest.mark.parametrize(
    ("stage", "left"),
    [
        ("advertise", [1, 2, 3]),
        ("share", [1, 2, 3]),
        ("mask", [1, 2, 3]),
        ("confirm", [1, 2, 3, 4]),
        ("unmask", [1, 2, 3, 4]),
    ],
)
def test_a_node_lost_at_any_stage(stage, left):
    nodes = Nodes()
    nodes.lost[4] = stage
    assert close(nodes.round(), nodes.mean(left))


def test_too_few_and_a_server_with_other_terms_leave_the_model_alone():
    nodes = Nodes()
    nodes.lost = {3: "mask", 4: "share"}
    assert nodes.round() is None
    nodes = Nodes()
    other = MaskedMeanWorkflow(replace(nodes.terms, threshold=4), roster=nodes.roster)
    assert nodes.round(workflow=other) is None


def test_noise_is_in_the_mean():
    nodes = Nodes(sigma=3.0)
    noise = np.concatenate(
        [(a - b).ravel() for a, b in zip(nodes.round(), nodes.mean([1, 2, 3, 4]), strict=True)]
    )
    assert 0.3 < np.std(noise) / (3 * np.sqrt(4 / 3) / 4) < 2


def test_an_update_beyond_the_bound_is_a_drop_out():
    nodes = Nodes()
    nodes.updates[2][0][0, 0] = 11
    assert close(nodes.round(), nodes.mean([1, 3, 4]))
    assert isinstance(nodes.errors[2], UsageError)
    assert "11" not in str(nodes.errors[2])


def test_nothing_of_an_update_leaves_a_node_unmasked():
    nodes = Nodes()
    nodes.round()
    for node, stage, reply in nodes.seen:
        assert not reply.content.array_records
        assert not reply.content.metric_records
        assert list(reply.content.config_records) == [_RECORD]
        if stage == "mask":
            plain = nodes.terms.encode(
                np.concatenate([x.ravel() for x in nodes.updates[node]]), stream=KeyedStream.fresh()
            )
            sent = np.frombuffer(
                reply.content.config_records[_RECORD]["message"], dtype=plain.dtype
            )
            assert not (sent == plain).any()


@pytest.mark.parametrize("kind", ["train", "train.custom", "get_parameters"])
def test_a_message_without_the_protocol_is_refused(kind):
    nodes = Nodes()
    message = Message(RecordDict(), dst_node_id=1, message_type=kind, group_id="1")
    with pytest.raises(MessageError, match="unmasked"):
        nodes.mod(message, nodes.contexts[1], lambda *_: pytest.fail("the update was made"))


def test_stages_out_of_order_twice_and_rounds_again():
    nodes = Nodes()
    nodes.round(1)
    last = nodes.seen[-1][1]
    assert last == "unmask"

    def send(stage, number, data=b""):
        content = RecordDict(
            {_RECORD: ConfigRecord({"stage": stage, "round": number, "message": data})}
        )
        message = Message(content, dst_node_id=1, message_type="train", group_id=number)
        return nodes.mod(message, nodes.contexts[1], lambda *_: pytest.fail("the update was made"))

    with pytest.raises(MessageError, match="already took part"):
        send("advertise", "7-1")
    for stage in ("share", "mask", "confirm", "unmask"):
        with pytest.raises(MessageError, match="current stage"):
            send(stage, "7-2")
    send("advertise", "7-2")
    with pytest.raises(MessageError, match="current stage"):
        send("mask", "7-2")
    for bad in ("nowhere", 3):
        with pytest.raises(MessageError, match="lacks a valid stage"):
            send(bad, "7-2")
    with pytest.raises(MessageError):
        send("share", "7-2", b"\xc1")
    # that was its one answer to this stage
    with pytest.raises(MessageError, match="current stage"):
        send("share", "7-2", b"\xc1")
