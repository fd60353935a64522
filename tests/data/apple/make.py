"""Write the configurations: ``python tests/data/apple/make.py [FOLDER]``; a test compares them.

Every entry keeps what Tang et al. (2017) print apart from what is filled in; in the XML files a
comment before each dict names its filled-in fields. README.md says the same in words.
"""

from __future__ import annotations

import plistlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

DAY, WEEK = 86_400.0, 604_800.0


class Entry(NamedTuple):
    """One dict: fields of the paper, and fields that are filled in."""

    paper: dict[str, Any]
    filled: dict[str, Any]

    @property
    def fields(self) -> dict[str, Any]:
        return self.paper | self.filled


def keys(pattern: str, properties: str, *words: str, paper: bool = False) -> list[Entry]:
    found = [
        {"KeyName": pattern.format(word), "PropertiesName": properties} for word in words or ("",)
    ]
    return [Entry(fields, {}) if paper else Entry({}, fields) for fields in found]


NEW, LOCAL = "com.apple.keyboard.NewWords.{}", "com.apple.keyboard.LocalWords.{}"
EMOJI = "com.apple.keyboard.Emoji.{}.EmojiKeyboard"

# Table 1 and section 3.2.1. Table 1 prints Emoji.fr_FR.Emoji, the text
# Emoji.fr_FR.EmojiKeyboard: the table's cell is cut.
PAPER_KEYS = [
    *keys(NEW, "NewWords", "en_US", "en_GB", "it_IT", "ru_RU", paper=True),
    *keys(NEW, "NewWordsChinese", "zh_Hans", paper=True),
    *keys(LOCAL, "LocalWords", "en_US", paper=True),
    *keys(EMOJI, "TermFrequency", "en_US", "fr_FR", "ru_RU", paper=True),
    *keys("com.apple.parsec.AppDeepLink", "DeepLinks", paper=True),
    *keys("com.apple.health.datatypes", "HealthDataTypes", paper=True),
    *keys(
        "com.apple.lookup.{}",
        "Search",
        "QueryMatch.queryOnly.notHighlighted",
        "DomainMatch",
        paper=True,
    ),
]

LANGUAGES = """
    cs_CZ da_DK de_AT de_CH de_DE el_GR en_AU en_CA en_IN en_NZ en_SG en_ZA es_ES es_MX
    fi_FI fr_BE fr_CA fr_CH he_IL hi_IN hu_HU id_ID it_CH ko_KR ms_MY nb_NO nl_BE nl_NL pl_PL pt_BR
    pt_PT
    ro_RO sk_SK sv_SE th_TH tr_TR uk_UA vi_VN
"""
PLACES = LANGUAGES.split()

FILLED_KEYS = [
    *keys(NEW, "NewWords", "fr_FR", *PLACES),
    *keys(NEW, "NewWordsChinese", "zh_Hant"),
    *keys(LOCAL, "LocalWords", "en_GB", "fr_FR", "it_IT", "ru_RU", *PLACES),
    *keys(EMOJI, "TermFrequency", "en_GB", "it_IT", "zh_Hans", *PLACES),
    *keys("com.apple.lookup.FilledIn.{}", "FilledInLookup", *"12345678"),
    *keys("com.apple.keyboard.EmojiCategory.FilledIn.{}", "FilledInEmojiCategory", *"1234"),
    *keys("com.apple.keyboard.WordLength.FilledIn.{}", "FilledInWordLength", *"123456"),
    *keys("com.apple.differentialprivacy.test.FilledIn.{}", "FilledInTest", *"123"),
    *keys("com.apple.differentialprivacy.testSketch.FilledIn.{}", "FilledInTestSketch", *"12"),
    *keys("com.apple.DifferentialPrivacy.FilledIn", "FilledInDefault"),
]


def keys_alone(pattern: str, properties: str, *words: str) -> list[Entry]:
    """KeyNames of the paper whose properties it does not give."""
    return [
        Entry({"KeyName": pattern.format(word)}, {"PropertiesName": properties}) for word in words
    ]


PHOTOS = keys_alone("apple.photos.search.miss.{}.en_US", "Search", "unnormalized", "normalized")
"""Table 3: in 10.12.1 only."""

PUZZLE, SKETCH, BIT, HADAMARD = (
    "SequenceFragmentPuzzle+CountMedianSketch",
    "CountMedianSketch",
    "OneBitHistogram",
    "HadamardCountMedianSketch",
)
DATA_ALGORITHM = "SequenceDiscoveryWithPuzzlePiece"

NEW_WORDS = Entry(  # Figure 5
    {
        "PropertiesName": "NewWords",
        "DataAlgorithm": DATA_ALGORITHM,
        "FragmentWidth": 2,
        "FragmentCount": 5,
        "PrivatizationAlgorithm": SKETCH,
        "BudgetKeyName": "com.apple.keyboard.NewWords",
        "PrivacyParameter": 2,
        "Transport": "crashcopier",
        "ServerAlgorithmString": PUZZLE,
        "KeyPatternsAllowed": False,
        "SubmissionPriority": 1,
    },
    {},
)


def properties(
    name: str, algorithm: str, budget: str, parameter: int, server: str, *, paper: bool
) -> Entry:
    """Properties with the algorithm, budget and PrivacyParameter of Table 1, or nothing."""
    table = {
        "PropertiesName": name,
        "PrivatizationAlgorithm": algorithm,
        "BudgetKeyName": budget,
        "PrivacyParameter": parameter,
    }
    puzzle = (
        {"DataAlgorithm": DATA_ALGORITHM, "FragmentWidth": 2, "FragmentCount": 5}
        if server == PUZZLE
        else {}
    )
    rest = {
        **puzzle,
        "ServerAlgorithmString": server,
        "Transport": "crashcopier",
        "KeyPatternsAllowed": False,
        "SubmissionPriority": 1,
    }
    if paper and server == algorithm == BIT:  # a report names the ServerAlgorithmString: Figure 11
        table["ServerAlgorithmString"] = rest.pop("ServerAlgorithmString")
    return Entry(table, rest) if paper else Entry({}, table | rest)


PROPERTIES = [
    NEW_WORDS,
    properties("NewWordsChinese", SKETCH, "com.apple.keyboard.NewWords", 2, PUZZLE, paper=True),
    properties("LocalWords", SKETCH, "com.apple.keyboard.NewWords", 2, PUZZLE, paper=True),
    properties("TermFrequency", BIT, "com.apple.keyboard.Emoji", 1, BIT, paper=True),
    properties("DeepLinks", SKETCH, "com.apple.parsec.AppDeepLink", 1, SKETCH, paper=True),
    properties("HealthDataTypes", BIT, "com.apple.health", 1, BIT, paper=True),
    properties("Search", BIT, "com.apple.parsec.Search", 1, BIT, paper=True),
    properties("FilledInLookup", BIT, "com.apple.parsec.Search", 1, BIT, paper=False),
    properties(
        "FilledInEmojiCategory", BIT, "com.apple.DifferentialPrivacy.default", 1, BIT, paper=False
    ),
    properties(
        "FilledInWordLength", BIT, "com.apple.DifferentialPrivacy.default", 1, BIT, paper=False
    ),
    properties(
        "FilledInTest", BIT, "com.apple.differentialprivacy.testBudget", 1, BIT, paper=False
    ),
    properties(
        "FilledInTestSketch",
        SKETCH,
        "com.apple.differentialprivacy.testBudget",
        1,
        SKETCH,
        paper=False,
    ),
    properties(
        "FilledInDefault", BIT, "com.apple.DifferentialPrivacy.default", 1, BIT, paper=False
    ),
]


def parameters(server: str, values: dict[str, Any], *, paper: bool) -> Entry:
    named = {"ServerAlgorithmString": server}
    values = {"AlgorithmParameters": values}
    return Entry(named | values, {}) if paper else Entry(named, values)


PARAMETERS = [
    parameters(
        PUZZLE,
        {
            "epsilon": 4,
            "sequenceFragmentBias": 0.5,
            "puzzleCount": 256,
            "sequenceM": 32768,
            "sequenceK": 285,
            "fragmentM": 32768,
            "fragmentK": 285,
        },
        paper=True,
    ),  # Figure 6
    parameters(BIT, {"epsilon": 1, "p": 5000}, paper=True),  # Figure 11
    parameters(SKETCH, {"epsilon": 1, "k": 32768, "m": 256}, paper=False),
]

PARAMETERS_11 = [
    *PARAMETERS[:2],
    parameters(SKETCH, {"epsilon": 2, "k": 32768, "m": 256}, paper=True),  # Figure 12
    parameters(HADAMARD, {"epsilon": 1, "k": 1024, "m": 32768}, paper=True),  # Figure 12
]


def budgets(amounts: dict[str, int]) -> list[Entry]:
    return [
        Entry(
            {
                "BudgetName": name,
                "SessionSeconds": WEEK if name.endswith("health") else DAY,
                "SessionAmount": amount,
            },
            {},
        )
        for name, amount in amounts.items()
    ]


TABLE_2 = {
    "com.apple.keyboard.Emoji": 1,
    "com.apple.parsec.Search": 1,
    "com.apple.keyboard.NewWords": 2,
    "com.apple.parsec.AppDeepLink": 10,
    "com.apple.health": 2,
    "com.apple.differentialprivacy.testBudget": 4,
    "com.apple.DifferentialPrivacy.default": 1,
}
TABLE_2_BEFORE = {
    name: amount for name, amount in TABLE_2.items() if name != "com.apple.health"
} | {
    "com.apple.keyboard.NewWords": 1,
    "com.apple.differentialprivacy.testBudget": 1,
}

SAFARI = Entry(
    {}, {"BudgetName": "com.apple.safari.FilledIn", "SessionSeconds": DAY, "SessionAmount": 10}
)
"""Section 6: ten records per report for the two Safari keys together; Figure 12 has 2 + 8.

    The budget's name is not given.
    """


def without(entries: list[Entry], field: str, values: set[str]) -> list[Entry]:
    return [entry for entry in entries if entry.fields[field] not in values]


def unprioritised(entry: Entry) -> Entry:
    return Entry(*({k: v for k, v in part.items() if k != "SubmissionPriority"} for part in entry))


def macos_10_12_3() -> dict[str, list[Entry]]:
    return {
        "keynames": [*PAPER_KEYS, *FILLED_KEYS],
        "keyproperties": PROPERTIES,
        "algorithmparameters": PARAMETERS,
        "budgetproperties": budgets(TABLE_2),
    }


def macos_10_12_1() -> dict[str, list[Entry]]:
    """Table 3 backwards. Keys of properties that are new cannot have been there either."""
    new = {"LocalWords", "HealthDataTypes"}
    return {
        "keynames": without([*PAPER_KEYS, *PHOTOS, *FILLED_KEYS], "PropertiesName", new),
        "keyproperties": [unprioritised(p) for p in without(PROPERTIES, "PropertiesName", new)],
        "algorithmparameters": PARAMETERS,
        "budgetproperties": budgets(TABLE_2_BEFORE),
    }


def ios_11() -> dict[str, list[Entry]]:
    """iOS 10.1.1 with what section 6 and Figure 12 say of the iOS 11 beta; the rest as it was."""
    old = macos_10_12_1()
    emoji = properties("TermFrequency", SKETCH, "com.apple.keyboard.Emoji", 2, SKETCH, paper=True)
    safari = Entry(
        {
            "PrivatizationAlgorithm": HADAMARD,
            "PrivacyParameter": 1,
            "ServerAlgorithmString": HADAMARD,
        },
        {
            "PropertiesName": "FilledInDomains",
            "BudgetKeyName": "com.apple.safari.FilledIn",
            "Transport": "crashcopier",
            "KeyPatternsAllowed": False,
        },
    )
    domains = keys_alone(
        "com.apple.safari.{}", "FilledInDomains", "DomainVisited", "DomainCausingEnergyDrain"
    )
    changed = [
        unprioritised(emoji) if p.fields["PropertiesName"] == "TermFrequency" else p
        for p in old["keyproperties"]
    ]
    amounts = TABLE_2_BEFORE | {"com.apple.keyboard.Emoji": 10}
    return {
        "keynames": [*old["keynames"], *domains],
        "keyproperties": [*changed, safari],
        "algorithmparameters": PARAMETERS_11,
        "budgetproperties": [*budgets(amounts), SAFARI],
    }


VERSIONS = {
    "10.12.1": macos_10_12_1,
    "10.12.3": macos_10_12_3,
    "ios-10.1.1": macos_10_12_1,
    "ios-11": ios_11,
}
BINARY = {"ios-11"}


def xml(entries: list[Entry]) -> bytes:
    head, _, tail = plistlib.dumps([]).decode().partition("<array/>")
    lines = [head + "<array>"]
    for entry in entries:
        if entry.filled:
            lines.append(f"\t<!-- filled in: {', '.join(entry.filled)} -->")
        body = plistlib.dumps(entry.fields, sort_keys=False).decode()
        body = body[body.index("<dict>") : body.index("</plist>")].replace(".0</real>", "</real>")
        lines += [f"\t{line}" for line in body.splitlines()]
    return "\n".join([*lines, "</array>" + tail]).encode()


def write(folder: Path) -> None:
    for version, make in VERSIONS.items():
        (folder / version).mkdir(parents=True, exist_ok=True)
        for table, entries in make().items():
            if version in BINARY:
                content = plistlib.dumps(
                    [e.fields for e in entries], fmt=plistlib.FMT_BINARY, sort_keys=False
                )
            else:
                content = xml(entries)
            (folder / version / f"com.apple.dprivacyd.{table}.plist").write_bytes(content)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
