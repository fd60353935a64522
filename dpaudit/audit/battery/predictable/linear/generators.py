"""Which generators have recurrences of a given length."""

from __future__ import annotations

from dpaudit.audit.battery.predictable.linear.berlekamp_massey import Recurrence

__all__ = ["known_as"]

_KNOWN = {
    23: "a shift register of 23 bits (PRBS23)",
    31: "a shift register of 31 bits (PRBS31)",
    32: "xorshift32",
    64: "xorshift64",
    88: "taus88",
    96: "xorshift96",
    113: "lfsr113",
    128: "xorshift128, xorshift128+ or xoroshiro128",
    160: "xorwow",
    223: "the combined Tausworthe generator of LuaJIT",
    250: "R250",
    256: "xoshiro256",
    258: "lfsr258",
    512: "WELL512 or xoshiro512",
    521: "a shift register of 521 places",
    607: "a Mersenne Twister or shift register of 607 bits",
    800: "TT800",
    1024: "WELL1024 or xorshift1024",
    1279: "a shift register of 1,279 places",
    9689: "a shift register of 9,689 places",
    11213: "a Mersenne Twister of 11,213 bits",
    19937: "the Mersenne Twister MT19937, or WELL19937",
}


_V8 = 64, 128  # numbers per block, length of the recurrence


def known_as(recurrence: Recurrence, *, stride: int) -> str | None:
    """The best known linear generators with this recurrence of every ``stride``-th value."""
    turns, length = recurrence.registers
    if (turns * stride, length) == _V8 and turns > 1:
        return "xorshift128+ in blocks of 64, the last first, as V8 (Node, Chrome) gives them"
    name = _KNOWN.get(length)
    return name if name is None or turns == 1 else f"{name}, {turns} in turn"
