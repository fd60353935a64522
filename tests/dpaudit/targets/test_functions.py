"""Several sessions, and inputs that an adversary chooses, as one release."""

import pytest

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.targets.functions import transcripts


class Shop:
    """What its sessions share: how many calls there were."""

    def __init__(self):
        self.calls = self.opened = 0

    def __call__(self):
        self.opened += 1
        number = self.opened

        def ask(data, told=None):
            self.calls += 1
            data.append("changed")  # a copy of its own
            return (number, self.calls, len(data), told)

        return ask


def test_sessions_are_called_in_turn_and_share_what_one_release_makes():
    released = transcripts(Shop, calls=2, sessions=2, name="Shop")
    for _ in range(2):
        assert released([7]) == [(1, 1, 2, None), (2, 2, 2, None), (1, 3, 2, None), (2, 4, 2, None)]


def test_an_adversary_sees_all_answers_and_chooses_the_session_and_its_input():
    seen = []

    def adversary(answers):
        seen.append(list(answers))
        answers.clear()  # it has a copy
        return (1, "late") if len(seen) < 3 else (0, len(seen))

    answers = transcripts(Shop, calls=2, sessions=2, adversary=adversary, name="Shop")([])
    assert [(a[0], a[3]) for a in answers] == [(2, "late"), (2, "late"), (1, 3), (1, 4)]
    assert seen == [answers[:i] for i in range(4)]


def test_one_session_gets_the_input_alone():
    made = transcripts(
        lambda: lambda data, told: (len(data), told),
        calls=3,
        adversary=lambda answers: len(answers),
        name="m",
    )
    assert made([1]) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("chosen", [2, (2, "x"), (0,), None, ("0", 1)])
def test_a_choice_of_no_session_is_refused(chosen):
    released = transcripts(Shop, calls=1, sessions=2, adversary=lambda _: chosen, name="Shop")
    with pytest.raises(SamplerOutputError, match=r"return \(session, input\)"):
        released([])


def test_what_makes_no_session_is_refused():
    with pytest.raises(UsageError, match="m: needs an argument"):
        transcripts(lambda x: x, calls=2, name="m")
    with pytest.raises(SamplerOutputError, match=r"returned float; m\(\) makes what the sessions"):
        transcripts(float, calls=2, sessions=2, name="m")([])
    with pytest.raises(
        SamplerOutputError, match=r"m\(\)\(\) returned int; a session is a function"
    ):
        transcripts(lambda: int, calls=2, sessions=2, name="m")([])
