"""Every page of the documentation, and the README, followed by a reader (`tests/documents.py`)."""

import pytest
from documents import ROOT, Reader, fences

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md", "attacks/*.md", "mitigations/*.md")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts
)
WITH_BLOCKS = [name for name in PAGES if fences((ROOT / name).read_text(encoding="utf-8"))]


def test_there_is_something_to_follow():
    assert {"README.md", "docs/audit-your-sampler.md", "docs/write-your-own/attack.md"} <= set(
        WITH_BLOCKS
    )


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_page(name, tmp_path):
    with Reader(tmp_path) as reader:
        steps = list(reader.follow((ROOT / name).read_text(encoding="utf-8")))
    wrong = [
        f"{name}:{line}: {what}\n{message}"
        for line, what, _, message in steps
        if message is not None
    ]
    assert not wrong, "\n\n".join(wrong)
    if name == "README.md":
        assert len(steps) >= 15
