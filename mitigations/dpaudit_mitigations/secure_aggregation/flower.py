"""Masking in a Flower round: a client mod and a workflow that replace Flower's SecAgg+.

The server's side::

    DefaultWorkflow(fit_workflow=MaskedMeanWorkflow(terms, roster=roster))(grid,
    LegacyContext(context, config, strategy))

Each node's::

    ClientApp(client_fn, mods=[MaskingMod(lambda context: Member(name=…, signing_key=…,
    roster=roster, terms=terms))])

``MaskingMod`` replaces ``secaggplus_mod``, ``MaskedMeanWorkflow`` ``SecAggPlusWorkflow``. ``terms``
and ``roster`` are the same for all and come from people, not from the server. The round's name in
``terms`` is a prefix; run and round are appended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.errors import MessageError, MissingExtraError, ProtocolError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.client import Client
from dpaudit_mitigations.secure_aggregation.plan import Plan, RingArray
from dpaudit_mitigations.secure_aggregation.server import Aggregator
from dpaudit_mitigations.secure_aggregation.suspended import resume, suspend
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms
from dpaudit_mitigations.transport.logs import logger

try:
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.common import (
        Code,
        FitRes,
        Parameters,
        Status,
        ndarrays_to_parameters,
        parameters_to_ndarrays,
    )
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "flower: in its own environment, pip install 'dpaudit[flower]'"
    ) from error

__all__ = ["MaskedMeanWorkflow", "MaskingMod", "Member"]

_RECORD = "dpaudit secure aggregation"
_STATE = "dpaudit secure aggregation state"
_TRAIN = "train"
_STAGES = ("advertise", "share", "mask", "confirm", "unmask")
_ROUND = re.compile(r"[0-9]{1,40}-[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True)
class Member:
    """What one node's operator sets; ``roster`` maps all names to raw Ed25519 public keys."""

    name: str
    signing_key: Ed25519PrivateKey = field(repr=False)
    roster: Mapping[str, bytes]
    terms: RoundTerms


class MaskingMod:
    """A Flower mod: the node's update leaves it masked, with its noise share, or not at all.

    The update is the concatenation of ``fit``'s arrays, of ``terms.length`` values of at most
    ``terms.bound`` in size; a larger one is refused, so put a clipping mod behind this one. Each
    client weighs the same; its ``num_examples`` and metrics stay local. Every ``train`` message
    goes through the protocol; one without its record is refused.

    Threat model and guarantee: those of :class:`.client.Client`; the server and SuperLink are
    trusted only with the sum of each round. Not claimed: a limit to the number of rounds, which the
    server chooses, each at the cost of another ε; anything about what other message types of the
    app reveal; anything if the node's runtime gives one saved context to two messages (a SuperNode
    keeps the context, with our round keys, between messages).
    """

    def __init__(
        self, member: Callable[[Any], Member], *, stream: Callable[[], Stream] = KeyedStream.fresh
    ) -> None:
        """``member(context)`` says who this node is; ``stream()`` is fresh and secret."""
        self._member, self._stream = member, stream

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        """Handle one message of the server.

        Raises:
            ProtocolError: a message that this stage does not allow; the round is over for this
                node.
            UsageError: an update beyond the terms, or settings that do not fit.
        """
        kind = message.metadata.message_type
        if kind == "get_parameters":
            raise MessageError("message get_parameters: unmasked; give the strategy initial ones")
        if kind.partition(".")[0] != _TRAIN:
            return call_next(message, context)
        if _RECORD not in message.content.config_records:
            raise MessageError("message train: without the protocol's record; refused unmasked")
        stage, number, given = _open(message.content.config_records[_RECORD])
        member = self._member(context)
        terms = _at(member.terms, number)
        plan = terms.plan(member.roster)
        state = context.state.config_records
        client = self._enter(stage, terms, plan, member, state)
        fit = partial(call_next, message, context)
        answer = {
            "advertise": lambda _: client.advertise(),
            "share": client.share_keys,
            "mask": lambda data: self._masked(client, terms, data, fit),
            "confirm": client.confirm,
            "unmask": client.unmask,
        }[stage](given)
        if not client.ended:
            done = (
                [*_rounds(state), terms.round] if stage == "advertise" else state[_STATE]["rounds"]
            )
            state[_STATE] = ConfigRecord(
                {"client": suspend(client), "stage": stage, "rounds": done}
            )
        reply = RecordDict(
            {_RECORD: ConfigRecord({"name": member.name, "stage": stage, "message": answer})}
        )
        return Message(reply, reply_to=message)

    def _enter(
        self, stage: str, terms: RoundTerms, plan: Plan, member: Member, state: Any
    ) -> Client:
        """The client that answers this stage; its saved state is erased before it answers."""
        if stage == "advertise":
            if terms.round in _rounds(state):
                raise MessageError(f"round {terms.round}: {member.name} already took part")
            return Client(plan, member.name, signing_key=member.signing_key, stream=self._stream())
        saved = state.get(_STATE)
        if (
            saved is None
            or not saved["client"]
            or _STAGES.index(stage) != _STAGES.index(saved["stage"]) + 1
        ):
            raise MessageError(f"stage {stage}: is not {member.name}'s current stage")
        client = resume(plan, signing_key=member.signing_key, data=saved["client"])
        state[_STATE] = ConfigRecord(
            {"client": b"", "stage": saved["stage"], "rounds": saved["rounds"]}
        )
        return client

    def _masked(
        self, client: Client, terms: RoundTerms, envelopes: bytes, fit: Callable[[], Any]
    ) -> bytes:
        client.open_envelopes(envelopes)
        found = compat.recorddict_to_fitres(fit().content, keep_input=False)
        if found.status.code != Code.OK:
            raise ProtocolError("fit: did not succeed on this node; it leaves the round")
        flat = [np.asarray(x).reshape(-1) for x in parameters_to_ndarrays(found.parameters)]
        vector = terms.encode(
            np.concatenate(flat) if flat else np.zeros(0), stream=self._stream().child("noise")
        )
        return client.masked_input(vector).tobytes()


class MaskedMeanWorkflow:
    """A Flower fit workflow: the nodes' noisy mean; the server sees masked vectors and the sum.

    The strategy gets, for each node in the sum, a result with the mean as its parameters and one
    example. A node that does not answer correctly within ``timeout`` seconds is dropped; below
    ``terms.threshold`` the model stays as it was.
    """

    def __init__(
        self, terms: RoundTerms, *, roster: Mapping[str, bytes], timeout: float = 600.0
    ) -> None:
        """``terms`` and ``roster`` as all nodes have them.

        Raises:
            UsageError: they do not fit each other.
        """
        terms.plan(roster)
        self._terms, self._roster, self._timeout = terms, dict(roster), timeout
        self._log = logger("flower")

    def __call__(self, grid: Any, context: Any) -> None:
        """Run one round and give its result to the strategy."""
        number = int(context.state.config_records[MAIN_CONFIGS_RECORD][Key.CURRENT_ROUND])
        current = compat.arrayrecord_to_parameters(
            context.state.array_records[MAIN_PARAMS_RECORD], keep_input=True
        )
        chosen = context.strategy.configure_fit(number, current, context.client_manager)
        nodes = {proxy.node_id: (proxy, instructions) for proxy, instructions in chosen}
        try:
            mean, survivors = _Round(self, grid, f"{grid.run.run_id}-{number}", nodes).run()
        except ProtocolError as error:
            self._log("lost", release=str(number), reason=str(error))
            return
        parameters = _shaped(mean, current)
        results = [
            (nodes[node][0], FitRes(Status(Code.OK, ""), parameters, 1, {})) for node in survivors
        ]
        new, metrics = context.strategy.aggregate_fit(number, results, [])
        if new:
            context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
                new, True
            )
            context.history.add_metrics_distributed_fit(server_round=number, metrics=metrics)


class _Round:
    """One round on the server's side."""

    def __init__(
        self, workflow: MaskedMeanWorkflow, grid: Any, number: str, nodes: Mapping[int, Any]
    ) -> None:
        self._grid, self._number, self._nodes = grid, number, nodes
        self._timeout, self._log = workflow._timeout, workflow._log
        self._terms = _at(workflow._terms, number)
        self._server = Aggregator(self._terms.plan(workflow._roster))
        self._names: dict[int, str] = {}

    def run(self) -> tuple[np.ndarray[Any, Any], list[int]]:
        """The mean of the survivors' vectors, (length,), and their nodes."""
        server = self._server
        self._ask("advertise", dict.fromkeys(self._nodes, b""), server.take_advert)
        self._ask("share", self._to(server.close_adverts()), server.take_shares)
        self._ask("mask", self._to(server.close_shares()), self._take_vector)
        self._ask("confirm", self._to(server.close_masked()), server.take_confirmation)
        self._ask("unmask", self._to(server.close_confirmations()), server.take_unmasking)
        aggregate = server.finish()
        total = self._terms.ring.decode(aggregate.total)
        survivors = [node for node, name in self._names.items() if name in aggregate.survivors]
        return np.divide(total, len(survivors), out=total), survivors

    def _to(self, answers: bytes | Mapping[str, bytes]) -> dict[int, bytes]:
        asked = [node for node, name in self._names.items() if name in self._server.expected]
        return {
            node: answers if isinstance(answers, bytes) else answers[self._names[node]]
            for node in asked
        }

    def _ask(
        self, stage: str, told: Mapping[int, bytes], take: Callable[[str, bytes], None]
    ) -> None:
        out = []
        for node, data in told.items():
            instructions = self._nodes[node][1]
            content = (
                compat.fitins_to_recorddict(instructions, True) if stage == "mask" else RecordDict()
            )
            content.config_records[_RECORD] = ConfigRecord(
                {"stage": stage, "round": self._number, "message": data}
            )
            out.append(
                Message(content, dst_node_id=node, message_type=_TRAIN, group_id=self._number)
            )
        for reply in self._grid.send_and_receive(out, timeout=self._timeout):
            node = reply.metadata.src_node_id
            try:
                self._take(stage, node, reply, take)
            except ProtocolError as error:
                self._log(
                    "refused", peer=str(node), method=stage, release=self._number, reason=str(error)
                )

    def _take(self, stage: str, node: int, reply: Any, take: Callable[[str, bytes], None]) -> None:
        if reply.has_error() or _RECORD not in reply.content.config_records:
            raise MessageError("the node answered with an error, or without the protocol's record")
        record = reply.content.config_records[_RECORD]
        name, message = record.get("name"), record.get("message")
        if (
            record.get("stage") != stage
            or not isinstance(name, str)
            or not isinstance(message, bytes)
        ):
            raise MessageError("not an answer of this stage")
        known = self._names.get(node)
        if node not in self._nodes or (known is not None and known != name):
            raise MessageError("from a node that is not asked, or in another's name")
        if known is None and (name in self._names.values() or name not in self._server.plan.roster):
            raise MessageError("in a name that is not in the roster, or another node's")
        take(name, message)
        self._names[node] = name

    def _take_vector(self, name: str, message: bytes) -> None:
        plan = self._server.plan
        if len(message) != plan.length * plan.dtype.itemsize:
            raise MessageError(f"masked vector of {name}: {len(message)} bytes, not of this plan")
        vector: RingArray = np.frombuffer(message, dtype=plan.dtype)
        self._server.take_masked(name, vector)


def _open(record: Any) -> tuple[str, str, bytes]:
    """(stage, round, message); raises MessageError if the record does not hold them."""
    stage, number, given = (record.get(key) for key in ("stage", "round", "message"))
    if (
        stage not in _STAGES
        or not isinstance(number, str)
        or not _ROUND.fullmatch(number)
        or not isinstance(given, bytes)
    ):
        raise MessageError("message train: its record lacks a valid stage, round and message")
    return stage, number, given


def _at(terms: RoundTerms, number: str) -> RoundTerms:
    return replace(terms, round=f"{terms.round}-{number}")


def _rounds(state: Any) -> list[str]:
    saved = state.get(_STATE)
    return list(saved["rounds"]) if saved is not None else []


def _shaped(mean: np.ndarray[Any, Any], like: Parameters) -> Parameters:
    """The mean cut into arrays of the model's shapes and dtypes."""
    out, at = [], 0
    for array in parameters_to_ndarrays(like):
        out.append(mean[at : at + array.size].reshape(array.shape).astype(array.dtype))
        at += array.size
    if at != mean.size:
        raise UsageError(f"length={mean.size}: the model has {at} parameters; set this length")
    return ndarrays_to_parameters(out)
