"""Untrusted property lists: read as plistlib does, or refused with a message."""

import datetime
import os
import plistlib
import random
import struct
import time
import tracemalloc

import pytest

from dpaudit.deployments.apple.configuration.plists import read_plist
from dpaudit.errors import UsageError

VALUE = [
    {
        "KeyName": "com.apple.a",
        "n": 2,
        "r": 0.5,
        "yes": True,
        "no": False,
        "inner": {"x": [1, -2, 2**40]},
    },
    {"KeyName": "名前 🦀", "data": b"\x00\x01", "when": datetime.datetime(2017, 9, 10, 12, 0)},
]
MOST_MEMORY = 4 * 2**20
"""Four times the limit on a file's size, which Python sets aside before reading."""
FORMATS = {"xml": plistlib.FMT_XML, "binary": plistlib.FMT_BINARY}


@pytest.fixture
def read(tmp_path):
    def read(content, **options):
        path = tmp_path / "some.plist"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_plist(path, **options)

    return read


def refused(read, content, *words, **options):
    with pytest.raises(UsageError) as caught:
        read(content, **options)
    message = str(caught.value)
    assert "some.plist: " in message
    assert "\n" not in message
    for word in words:
        assert word in message


def xml(body, doctype=""):
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}<plist version="1.0">{body}</plist>'


def binary(objects, *, top=0, reference_size=1, offsets=None, count=None, table=None):
    """A binary property list of hand-made objects."""
    body, found = b"bplist00", []
    for one in objects:
        found.append(len(body))
        body += one
    start = len(body)
    listed = b"".join(struct.pack(">I", o) for o in (found if offsets is None else offsets))
    return (
        body
        + listed
        + struct.pack(
            ">6xBBQQQ",
            4,
            reference_size,
            len(objects) if count is None else count,
            top,
            table or start,
        )
    )


def array(*references):
    assert len(references) < 15
    return bytes([0xA0 | len(references), *references])


@pytest.mark.parametrize("form", FORMATS)
def test_what_plistlib_writes_is_read(read, form):
    assert read(plistlib.dumps(VALUE, fmt=FORMATS[form])) == VALUE


@pytest.mark.parametrize(("encoding", "name"), [("utf-16", "UTF-16"), ("utf-8-sig", "UTF-8")])
def test_encodings_with_a_mark(read, encoding, name):
    assert read(
        xml("<array><string>ä</string></array>").replace("UTF-8", name).encode(encoding)
    ) == ["ä"]


LAUGHS = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
SUBSETS = {
    "laughs": f'<!ENTITY a0 "ha">{LAUGHS}',
    "external": '<!ENTITY a9 SYSTEM "file:///etc/passwd">',
    "parameter": '<!ENTITY % p "x">',
    "attributes": '<!ATTLIST plist version CDATA "9">',
    "empty": " ",
}


@pytest.mark.parametrize("subset", SUBSETS)
def test_internal_subsets_are_refused(read, subset):
    tracemalloc.start()
    refused(
        read,
        xml("<array><string>&a9;</string></array>", f"<!DOCTYPE plist [{SUBSETS[subset]}]>"),
        "internal subset",
    )
    assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    tracemalloc.stop()


@pytest.mark.parametrize("subset", ["laughs", "external", "parameter"])
def test_plistlib_refuses_entities_as_well(subset):
    """A second wall: no entity is expanded, even if our own check were gone."""
    content = xml("<array><string>&a9;</string></array>", f"<!DOCTYPE plist [{SUBSETS[subset]}]>")
    with pytest.raises(
        plistlib.InvalidFileException, match="entity declarations are not supported"
    ):
        plistlib.loads(content.encode(), fmt=plistlib.FMT_XML)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("<array><set/></array>", "<set>"),
        ("<array><key>a</key></array>", "<key>"),
        ("<array><string>a<integer>1</integer></string></array>", "inside <string>"),
        ("<dict><key>a</key><true/><key>a</key><false/></dict>", "twice"),
        ("<dict><key>a</key><key>b</key></dict>", "unexpected key at line 2"),
        ("<key>a</key>", "<key>"),
        ("<array><true>no</true></array>", "'no' in <true>"),
        ("<array><integer>1_0</integer></array>", "'1_0' in <integer>"),
        ("<array>stray</array>", "text"),
        ("<array/><array/>", "2 values"),
        ("", "0 values"),
        ("<array>" * 40 + "</array>" * 40, "deeper"),
        ("<array><date>soon</date></array>", "'soon' in <date>"),
        ("<array><integer>two</integer></array>", "'two' in <integer>"),
        ("<array><integer>" + "9" * 5000 + "</integer></array>", "in <integer>"),
        ("<array><date>2017Z</date></array>", "'2017Z' in <date>"),
        ("<array><date>2017-13-10T12:00:00Z</date></array>", "month"),
        ("<array><real>big</real></array>", "could not convert"),
        ("<array><plist/></array>", "<plist>"),
        ("<array><data>a</data></array>", "not a property list (Invalid base64"),
        ("<dict><key>a</key></dict>", "missing value for key 'a'"),
        ("<dict><string>a</string></dict>", "unexpected element at line 2"),
        ("<array><string>&other;</string></array>", "not a property list"),
    ],
)
def test_bad_xml_is_refused(read, body, word):
    refused(read, xml(body), word)


def test_other_roots_and_no_xml_are_refused(read):
    refused(read, "<html><body/></html>", "<html>")
    for content in (
        b"",
        b"\x00" * 100,
        b"PK\x03\x04",
        b"<plist>",
        b'<?xml version="1.0" encoding="klingon"?><plist/>',
    ):
        refused(read, content)


def test_many_values_are_refused(read):
    body = "<array>" + "<true/>" * 1000 + "</array>"
    assert len(read(xml(body), nodes=1001)) == 1000
    refused(read, xml(body), "1,001", nodes=1000)
    refused(
        read,
        plistlib.dumps([1000 + i for i in range(1000)], fmt=plistlib.FMT_BINARY),
        "1,000",
        nodes=1000,
    )


def test_size_is_bounded_before_reading(tmp_path):
    path = tmp_path / "large.plist"
    with path.open("wb") as file:
        file.truncate(2**34)  # sparse
    tracemalloc.start()
    with pytest.raises(UsageError, match=r"larger than 1,048,576 bytes"):
        read_plist(path)
    assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    tracemalloc.stop()


@pytest.mark.parametrize(
    "token", ["<!--{}-->", "<string{}/>", "<?a {}?>", "<string x='{}'/>", "<string>{}</string>"]
)
def test_one_long_token_is_read_in_time(read, token):
    """``plistlib`` feeds expat in pieces: before 2.6 the time is quadratic in a token's length."""
    filling = (" " if token == "<string{}/>" else "a") * (2**20 - 200)
    start = time.monotonic()
    found = read(xml(f"<array>{token.format(filling)}</array>"))
    assert time.monotonic() - start < 10
    assert found == ([] if token[1] in "!?" else [filling] if token.endswith("</string>") else [""])


LEAVES = """<string> a&amp;b&#65; </string> <string></string> <string/> <integer>-5</integer>
    <integer>0x1F</integer> <integer> 7 </integer> <integer>18446744073709551615</integer>
    <real>-1.5e3</real> <real>nan</real> <real>inf</real>
    <date>2017-09-10T12:00:00Z</date> <data> AAEC\n  Aw== </data> <data/> <true/> <false></false>
    <string><![CDATA[<a>]]></string> <array/> <dict/> <dict><key/><array><true/></array></dict>"""


def test_leaves_are_what_plistlib_reads(read):
    content = xml(f"<array>{LEAVES}</array>")
    assert repr(read(content)) == repr(plistlib.loads(content.encode()))


def test_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.plist")
    for name, word in (
        ("pipe.plist", "regular"),
        (".", "regular"),
        ("none.plist", "cannot be read"),
        ("a\0b", "cannot"),
    ):
        with pytest.raises(UsageError, match=word):
            read_plist(tmp_path / name)


LEAF = b"\x10\x07"
BAD_BINARY = {
    "contains itself": [array(0)],
    "contains itself, in two steps": [array(1), array(2), array(1)],
    "dict that contains itself": [b"\xd1\x01\x00", b"\x51a"],
    "refers outside": [array(9)],
    "many references": [b"\xaf\x13" + struct.pack(">Q", 2**60)],
    "count of a strange kind": [b"\xaf\x23" + bytes(8)],
    "long string": [b"\x5f\x13" + struct.pack(">Q", 2**62)],
    "integer of 32 kB": [b"\x1f" + bytes(2**15)],
    "unknown marker": [b"\xc1\x00"],
    "key that is no string": [b"\xd1\x01\x01", LEAF],
    "key that is an array": [b"\xd1\x01\x02", array(), LEAF],
    "key twice": [b"\xd2\x01\x01\x02\x02", b"\x51a", LEAF],
    "date beyond": [b"\x33" + struct.pack(">d", 1e300)],
    "date that is none": [b"\x33" + struct.pack(">d", float("nan"))],
    "text that is not ASCII": [b"\x51\xff"],
    "half a pair": [b"\x61\xd8\x00"],
    "deep": [*(array(i + 1) for i in range(40)), LEAF],
    "deep behind a short way": [array(32, 16, 1), *(array(i + 1) for i in range(1, 48)), LEAF],
}


@pytest.mark.parametrize("name", BAD_BINARY)
def test_bad_binary_is_refused(read, name):
    refused(read, binary(BAD_BINARY[name]), "contains itself" if "contains itself" in name else "")


def test_bad_trailers_are_refused(read):
    good = [array(1), LEAF]
    assert read(binary(good)) == [7]
    for options in (
        {"top": 2},
        {"count": 0},
        {"count": 2**60},
        {"reference_size": 0},
        {"table": 3},
        {"table": 2**63},
        {"offsets": [8, 3]},
        {"offsets": [8, 2**31]},
    ):
        refused(read, binary(good, **options))
    refused(read, b"bplist17" + bytes(60), "version")


def test_shared_values_count_each_time(read):
    """Ten arrays of ten references each: ten thousand million values in 120 bytes."""
    layers = [array(*[i + 1] * 10) for i in range(10)]
    tracemalloc.start()
    refused(read, binary([*layers, LEAF]), "500,000 values")
    assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    tracemalloc.stop()
    assert read(binary([array(1, 1), array(2, 2), LEAF])) == [[7, 7], [7, 7]]


def test_overlapping_objects_are_refused(read):
    """A thousand strings at the same 20,000 bytes would be 20 MB; honest objects do not overlap."""
    text = b"\x5f\x11" + struct.pack(">H", 20_000) + b"a" * 20_000
    top = (
        b"\xaf\x11"
        + struct.pack(">H", 1000)
        + b"".join(struct.pack(">H", i + 1) for i in range(1000))
    )
    offsets = [8, *[8 + len(top)] * 1000]
    refused(read, binary([top, text], reference_size=2, offsets=offsets, count=1001), "overlap")


@pytest.mark.parametrize("form", FORMATS)
def test_damage_is_refused_or_read_and_nothing_else(read, form):
    content = plistlib.dumps(VALUE, fmt=FORMATS[form])
    rng = random.Random(8)
    damaged = [content[:n] for n in range(0, len(content), 1 if form == "binary" else 3)]
    for _ in range(400):
        copy = bytearray(content)
        for _ in range(rng.randint(1, 3)):
            copy[rng.randrange(len(copy))] = rng.choice((0, 255, rng.randrange(256)))
        damaged.append(bytes(copy))
    seen = 0
    for one in damaged:
        try:
            value = read(one)
        except UsageError:
            seen += 1
        else:
            assert repr(value) == repr(plistlib.loads(one, fmt=FORMATS[form]))
    assert seen > len(damaged) // 5
