"""Text from outside: whatever it holds and whatever class it has, what comes out is harmless."""

import io
import json
import signal
import sys
import unicodedata

import pytest

from dpaudit.results.text import error_text, json_escaped, one_line, printable, tell

HOSTILE = (
    "\x1b[2JNo finding\x1b]52;c;AAAA\x07\r\b\x9b1m\u202e\u2066\u2028\u2029\u200b\u2060\ufeff\u3164"
    "\ufe0f\ud800\x00\x7f"
)
_BAD = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


class Liar(Exception):
    @property
    def __class__(self):
        raise SystemExit(0)

    def __str__(self):
        raise SystemExit(0)

    __repr__ = __str__


class Endless(Exception):
    def __str__(self):
        return str(self)


class NoText(Exception):
    def __str__(self):
        return 7


class Text(str):
    """Overrides what a cleaner might call."""

    __slots__ = ()

    def _raise(self, *_):
        raise AssertionError("called")

    __str__ = __len__ = __getitem__ = __iter__ = __format__ = isprintable = split = isascii = (
        encode
    ) = replace = _raise


class Meta(type):
    @property
    def __name__(cls):
        raise AssertionError("called")


class Odd(Exception, metaclass=Meta):
    pass


def harmless(text):
    return type(text) is str and all(c == "\n" or unicodedata.category(c) not in _BAD for c in text)


@pytest.mark.slow
@pytest.mark.parametrize("make", [printable, one_line])
def test_every_character_of_unicode_comes_out_harmless(make):
    for start in range(0, sys.maxunicode + 1, 4096):
        block = "".join(map(chr, range(start, min(start + 4096, sys.maxunicode + 1))))
        out = make(block, limit=5000)
        assert harmless(out)
        out.encode()


def test_what_steers_hides_or_breaks_is_replaced_and_the_rest_stays():
    assert printable(HOSTILE) == "�[2JNo finding�]52;c;AAAA����1m" + "�" * 12
    assert printable("ε ≤ 1 – 日本\na") == "ε ≤ 1 – 日本\na"
    assert one_line("a\r\nb\u2028c\t d\n") == "a b c d"


def test_it_is_cut_and_the_cut_shows():
    assert printable("x" * 10_000) == "x" * 1999 + "…"
    assert one_line("x " * 10_000, limit=4) == "x x…"
    assert one_line("x" + " " * 10_000, limit=10) == "x…"
    assert one_line("x" * 4, limit=4) == "x" * 4


STRANGERS = {  # made in the test: pytest itself would trip over them
    "text": lambda: Text(HOSTILE),
    "class name": lambda: type(HOSTILE[:20], (Exception,), {})(HOSTILE),
    "liar": Liar,
    "endless": Endless,
    "no text": NoText,
    "metaclass": Odd,
}


@pytest.mark.parametrize("which", STRANGERS)
def test_no_class_gets_its_way(which):
    value = STRANGERS[which]()
    assert harmless(printable(value))
    assert harmless(one_line(value))
    assert "\n" not in one_line(value)
    if which != "text":
        assert harmless(error_text(value))


@pytest.mark.parametrize("make", [printable, one_line, error_text])
def test_ctrl_c_while_a_stranger_is_read_ends_the_program(make):
    class Slow(Exception):
        def __str__(self):
            signal.raise_signal(signal.SIGINT)
            return "never read"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            make(Slow())
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_an_exception_says():
    assert error_text(ValueError(" a\n b")) == "ValueError: a b"
    assert error_text(ValueError()) == "ValueError"
    assert (
        error_text(type("\x1b[31m" + "x" * 300, (Exception,), {})("y"))
        == "�[31m" + "x" * 95 + ": y"
    )
    assert error_text(Liar()) == "Liar: <Liar that cannot be printed>"
    assert error_text(Odd("a")) == "Odd: a"
    assert len(error_text(ValueError("x" * 10**6))) == len("ValueError: ") + 500


def test_escaped_json_is_the_same_document_and_can_be_encoded():
    document = {HOSTILE: [HOSTILE, 'ε\n\t\\"', "\U000e0001"]}
    text = json_escaped(json.dumps(document, ensure_ascii=False, indent=2))
    assert json.loads(text) == document
    assert harmless(text)
    text.encode()


class Full(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [None, Full()])
def test_a_stderr_that_cannot_be_written_is_ignored(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    tell("anything")


def test_stderr_gets_printable_text(capsys):
    tell(HOSTILE)
    assert harmless(capsys.readouterr().err)
