"""Kills the two servers (SIGKILL) while they release, restarts them, and checks every release.

Run as a program; prints one line of JSON and exits 0 if no rule was broken. Both servers are real
processes, forked from this one so that a start takes milliseconds; this one never makes a
connection.

--rounds N   N releases, each with one to three kills of either server or both at random times
--events     a release for every point at which one of the servers can be killed: after each change
of a file, before and
             after each of a journal, and at each frame (before a change of a file it is as after
             the one before)
--twice      and once more soon after
--party P    only those of ``noise`` or ``answer``; --start K from the K-th on
--forget X   a known-bad version: X loses its journal when it is killed (answer or noise), or the
seed is drawn anew (seed)
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations import commands
from dpaudit_mitigations.transport import journal as journals
from dpaudit_mitigations.transport.certificates import make_authority
from dpaudit_mitigations.two_servers import (
    agreement,
    answer_side,
    noise_side,
)

DIM, CHUNK, SIGMA, BOUND = 300, 150, 2.0, 1000.0
PATIENCE = 300.0  # seconds; only a release that is lost takes so long


class Broken(Exception):
    """A rule does not hold."""


class Party:
    """One server: started by fork, killed, waited for; what it prints goes to files."""

    def __init__(self, folder, name, main, options):
        self.folder, self.name, self.pid = folder, name, None
        self.main, self.options = main, options

    def start(self, kill_at=None, **arguments):
        out, err = self.folder / f"{self.name}.out", self.folder / f"{self.name}.err"
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            watch(self.folder / f"{self.name}.trace", kill_at)
            self.main(self.options(**arguments))
            code = 0
        except BaseException:  # noqa: BLE001  the child ends here, whatever it was
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def ended(self):
        """None while it runs, then its exit status (negative: the signal)."""
        if self.pid is None:
            return 0
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def kill(self):
        """Whether it was still alive."""
        if self.pid is None:
            return False
        os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = None
        return status == -signal.SIGKILL

    def said(self):
        path = self.folder / f"{self.name}.out"
        lines = path.read_text().splitlines() if path.exists() else []
        return json.loads(lines[-1]) if lines else None


def watch(trace, kill_at):
    """In a server: note every frame sent and file published; die at the ``kill_at``-th event."""
    count = 0
    fd = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def event():
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner, name):
        work = getattr(owner, name)

        def watched(*args, **kwargs):
            if owner is journals.Journal:
                event()
            done = work(*args, **kwargs)
            event()
            return done

        setattr(owner, name, watched)

    frames, link = answer_side.vector_frames, os.link

    def traced_frames(*args, session, **kwargs):
        for index, frame in enumerate(frames(*args, session=session, **kwargs)):
            os.write(fd, f"{session.hex()} {index} {hashlib.sha256(frame).hexdigest()}\n".encode())
            event()
            yield frame

    def traced_link(source, target):
        link(source, target)
        if str(target).endswith(".npy"):
            digest = hashlib.sha256(Path(target).read_bytes()).hexdigest()
            os.write(fd, f"{Path(target).name} 0 {digest}\n".encode())

    answer_side.vector_frames, os.link = traced_frames, traced_link
    for owner, names in (
        (journals.Journal, ["advance"]),
        (journals, ["write_all"]),
        (noise_side.Publications, ["draft", "publish", "discard"]),
        (os, ["link", "fsync"]),
        (noise_side.VectorReader, ["take"]),
        (answer_side.Seeds, ["make", "erase"]),
    ):
        for name in names:
            around(owner, name)


class Rounds:
    """The two parties in a folder, and the rules."""

    def __init__(self, folder, seed, forget, twice):
        self.folder, self.forget, self.twice = folder, forget, twice
        self.random, self.values = random.Random(seed), np.random.default_rng(seed)
        make_authority(folder / "certificates", ["answer", "noise"])
        self.noise = Party(folder, "noise", commands.noise, commands.NoiseAdding)
        self.answer = Party(folder, "answer", commands.answer, commands.Answering)
        self.address, self.seen, self.names = "127.0.0.1:0", {}, []
        self.kills = {"noise": 0, "answer": 0}
        self.usual = 0.1  # seconds of an undisturbed release
        self.start_noise()
        while self.noise.said() is None:
            if self.noise.ended() is not None:
                raise Broken("server 2 did not start")
            time.sleep(0.01)
        self.address = self.noise.said()["address"]

    def start_noise(self, kill_at=None):
        identity, journal = self.folder / "certificates" / "noise", self.folder / "noise.journal"
        terms = {"sigma": SIGMA, "bound": BOUND, "dim": DIM, "dtype": "float32"}
        places = {"identity": identity, "journal": journal, "publish": self.folder / "published"}
        peers = {"listen": self.address, "peer": "answer", "idle": PATIENCE}
        self.noise.start(kill_at, **terms, **places, **peers)

    def start_answer(self, kill_at=None):
        identity, journal = self.folder / "certificates" / "answer", self.folder / "answer.journal"
        release = self.names[-1]
        asked = {"query": self.folder / f"{release}.npy", "release": release, "number": 0}
        noise = {"source": "secure-gaussian", "sigma": SIGMA, "peer_sigma": None}
        peers = {"peer": self.address, "peer_name": "noise", "patience": PATIENCE}
        places = {"identity": identity, "journal": journal}
        self.answer.start(kill_at, **asked, **noise, **peers, **places)

    def new(self):
        self.names.append(f"r{len(self.names)}")
        values = self.values.integers(-50, 50, DIM).astype(np.float32)
        np.save(self.folder / f"{self.names[-1]}.npy", values)

    def kill(self, party):
        if party.kill():
            self.killed(party)

    def killed(self, party):
        self.kills[party.name] += 1
        if self.forget == party.name:
            shutil.rmtree(self.folder / f"{party.name}.journal", ignore_errors=True)
        self.look()

    def at_random(self):
        """One release, killed at random times."""
        self.new()
        for _ in range(self.random.randint(1, 3)):
            if not self.noise.pid:
                self.start_noise()
            if not self.answer.pid:
                self.start_answer()
            time.sleep(self.random.uniform(0, 1.3 * self.usual))
            for party in self.random.choice(
                [[self.noise], [self.answer], [self.noise, self.answer]]
            ):
                self.kill(party)
        self.finish()

    def at_event(self, name, number):
        """One release, in which the party of that name dies at its ``number``-th event.

        Returns whether there was such an event.
        """
        self.new()
        again = self.random.randint(1, 12)
        victim, start = (
            (self.noise, self.start_noise) if name == "noise" else (self.answer, self.start_answer)
        )
        if victim is self.noise:
            self.noise.kill()
        start(number)
        if victim is self.noise:
            self.start_answer()
        died = False
        for kill_at in (again, None) if self.twice else (None,):
            while (ended := victim.ended()) is None and (
                victim is self.answer or self.answer.ended() is None
            ):
                time.sleep(0.003)
            if ended != -signal.SIGKILL:
                break
            died = True
            self.killed(victim)
            start(kill_at)
        self.finish()
        return died

    def finish(self):
        """Let the release end undisturbed, and check it."""
        began, tries = time.monotonic(), 0
        while True:
            if not self.noise.pid:
                self.start_noise()
            if not self.answer.pid:
                tries += 1
                self.start_answer()
            ended = None
            while ended is None:
                time.sleep(0.003)
                ended = self.answer.ended()
                if time.monotonic() - began > PATIENCE or ended not in (None, 0, -signal.SIGKILL):
                    raise Broken(f"{self.names[-1]} is lost: " + self.last_words())
                if self.noise.pid and (gone := self.noise.ended()) is not None:
                    if gone != -signal.SIGKILL:
                        raise Broken(f"server 2 ended with {gone}")
                    self.start_noise()
            if ended == 0:
                break
        if tries == 1:
            self.usual = 0.9 * self.usual + 0.1 * (time.monotonic() - began)
        self.check()

    def last_words(self):
        return (self.folder / "answer.err").read_text()[-400:]

    def look(self):
        """What has been published never changes."""
        for path in (self.folder / "published").glob("*.npy"):
            if path.name not in self.seen or path.stem == f"{self.names[-1]}@0":
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                if self.seen.setdefault(path.name, digest) != digest:
                    raise Broken(f"{path.name} changed after it was published")

    def check(self):
        """The last release: there, what the receipt says, and the query with both noises."""
        self.look()
        name = f"{self.names[-1]}@0.npy"
        receipt = self.answer.said()
        if receipt["file"] != name or receipt["sha256"] != self.seen.get(name):
            raise Broken(f"{name} is not what server 1's receipt says")
        published = np.load(self.folder / "published" / name)
        noise = published - np.load(self.folder / f"{self.names[-1]}.npy")
        if not 0.75 < noise.std() / (SIGMA * 2**0.5) < 1.25:  # 300 values: six standard deviations
            raise Broken(f"{name}: noise of scale {noise.std():.3g}")

    def end(self):
        """All releases, when all is over."""
        self.noise.kill()
        published = sorted(p.name for p in (self.folder / "published").glob("[!.]*"))
        if published != sorted(f"{name}@0.npy" for name in self.names):
            raise Broken("other files are published than were released")
        for name in self.names:
            path = self.folder / "published" / f"{name}@0.npy"
            if hashlib.sha256(path.read_bytes()).hexdigest() != self.seen[path.name]:
                raise Broken(f"{path.name} changed after it was published")
        frames, links = {}, {}
        for party, found in ((self.answer, frames), (self.noise, links)):
            for line in (self.folder / f"{party.name}.trace").read_text().splitlines():
                what, index, digest = line.split()
                found.setdefault((what, index), []).append(digest)
        changed = sum(len(set(digests)) > 1 for digests in frames.values())
        if changed:
            raise Broken(f"{changed} frames of server 1 were sent with other noise after a restart")
        if any(len(digests) > 1 for digests in links.values()):
            raise Broken("something was published twice")
        if left := [p.name for p in (self.folder / "answer.journal").glob("*.seed")]:
            raise Broken(f"{len(left)} seeds were not erased")
        return {
            "releases": len(self.names),
            "kills": self.kills,
            "frames": sum(map(len, frames.values())),
            "sent again": sum(len(digests) > 1 for digests in frames.values()),
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--party", choices=["noise", "answer"])
    parser.add_argument("--start", type=int, default=1)
    parser.add_argument("--forget", choices=["answer", "noise", "seed"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for module in (agreement, answer_side, noise_side):
        module.CHUNK = CHUNK  # several frames for a short vector
    if options.forget == "seed":
        answer_side.Seeds.read = lambda self, name: KeyedStream.fresh()
    warm_up()
    began, found = time.monotonic(), {}
    # SIGKILL loses nothing there, and fsync is quick
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dpaudit-kills-", dir=memory) as name:
        rounds = None
        try:
            rounds = Rounds(Path(name), options.seed, options.forget, options.twice)
            for _ in range(options.rounds):
                rounds.at_random()
            for party in (
                [options.party] if options.party else ["noise", "answer"] if options.events else []
            ):
                number = options.start
                while rounds.at_event(party, number):
                    number += 1
                found[f"points in {party}"] = number - 1
            found |= rounds.end()
        except Broken as error:
            found |= {"broken": str(error)} | ({"kills": rounds.kills} if rounds else {})
        finally:
            if rounds:
                rounds.answer.kill()
                rounds.noise.kill()
    print(json.dumps(found | {"seconds": round(time.monotonic() - began, 1)}))
    return 1 if "broken" in found else 0


def warm_up():
    """Compile and import what the children need, without a thread or a connection."""

    draw = agreement.secure_draw(
        sigma=SIGMA, step=agreement.granularity(BOUND, sigma=SIGMA), stream=KeyedStream.fresh()
    )
    out = np.empty(4, np.int32)
    answer_side.add_query(draw(0, 4), np.zeros(4, np.float32), 1.0, out)
    noise_side.add_steps(draw(0, 4), out, 1.0, np.empty(4, np.float32))


if __name__ == "__main__":
    sys.exit(main())
