"""What is wrong in a page is found: each line here is one that somebody could write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_blocks import blocks
from tests.doc_blocks.blocks import Block, blocks_of, inline_commands
from tests.doc_blocks.commands import commands_of, wrong_with, wrong_with_mention
from tests.doc_blocks.running import Outcome
from tests.doc_blocks.writing import stale, written

PAGE = """# A page

`advisor advise X --nope` and `curl
-s x`.

<!-- not run: needs root -->
```sh
sudo true
```

1. In a list:

   ```sh
   printf 'b: 2\\na: 1\\n  more of a\\n'
   ```

   <!-- output: a -->
   ```text
   a: 0
   ```

<!-- conversation: begin -->
```
generated
```
<!-- conversation: end -->
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_have_their_place_their_comments_and_no_indent(page: Path) -> None:
    found = [(block.place, block.language, block.text, block.comments) for block in blocks_of(page)]
    assert found == [
        ("page.md:7", "sh", "sudo true\n", {"not run": "needs root"}),
        ("page.md:13", "sh", "printf 'b: 2\\na: 1\\n  more of a\\n'\n", {}),
        ("page.md:18", "text", "a: 0\n", {"output": "a"}),
    ]
    assert inline_commands(page) == ["advisor advise X --nope", "curl -s x"]


def test_an_output_that_is_another_one_now_is_named_and_written(page: Path) -> None:
    outcome = Outcome({13: "b: 2\na: 1\n  more of a\n"}, None)
    assert stale(page, outcome) == ["page.md:18 is now:\na: 1\n  more of a\n"]
    page.write_text(written(page, outcome))
    assert page.read_text() == PAGE.replace("   a: 0\n", "   a: 1\n     more of a\n")
    assert stale(page, outcome) == []


def test_a_shell_splits_the_commands_and_fills_in_what_they_print() -> None:
    text = "A=$(curl -s http://x/ | jq -r .id)\n.venv/bin/advisor check 'a \\\n b' <<< \"$A\" > kept  # why\n"
    text += "(free; lscpu) | cat\n"
    found = [words for _, words in commands_of([Block(blocks.ROOT / "x", 1, "sh", text)])]
    assert sorted(found) == sorted(
        [
            ["curl", "-s", "http://x/"],
            ["jq", "-r", ".id"],
            ["advisor", "check", "a \\\n b"],
            ["free"],
            ["lscpu"],
            ["cat"],
        ]
    )


def test_nothing_is_run_or_written_elsewhere_by_reading_it(tmp_path: Path) -> None:
    text = f"/bin/rm {tmp_path}\ncat > {tmp_path}/a <<END\nx\nEND\ntrue && /usr/bin/env b >>{tmp_path}/b 2> /dev/null"
    found = [words for _, words in commands_of([Block(blocks.ROOT / "x", 1, "sh", text)])]
    assert found == [["rm", str(tmp_path)], ["cat"], ["env", "b"]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["exit 0", "echo 'never closed", "advisor serve $NOBODY_SET_IT", "./not-there"])
def test_what_no_shell_reads_is_found(text: str) -> None:
    with pytest.raises(AssertionError, match=r"x:1|unbound|No such file|line 1|never run"):
        commands_of([Block(blocks.ROOT / "x", 1, "sh", text)])


SERVICE = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("advisor advise owner/name", None),
        ("advisor advise owner/name --hardwear x", "unrecognized arguments: --hardwear"),
        ("advisor advice", "invalid choice"),
        ("advisor advise owner/name --hardware 2x5090", None),
        ("advisor advise owner/name --hardware RTX9999", "RTX9999"),
        ("make demo SEED=1", None),
        ("make dmeo", "no target"),
        ("python -m bench.speed", None),
        ("python -m bench.sped", "no module"),
        ("pip install offload-advisor[agent]", None),
        ("pip install offload-advisor[agents]", "no extra"),
        ("sudo -u advisor advisor host runn", "invalid choice"),
        ("sh examples/advice.sh a b", None),
        ("frobnicate", "no program"),
        (f"curl -sS {SERVICE}/v1/hardware/gpus?q=5090", None),
        ("curl -s https://example.org/anything", None),
        (f"curl -s {SERVICE}/v1/hardware/gpu", "no GET"),
        (f"curl -s {SERVICE}/v1/hardware/gpus?name=5090", "takes no name"),
        (f"curl -X DELETE {SERVICE}/v1/hardware/gpus", "no DELETE"),
        (f"curl --jsn x {SERVICE}/v1/check", "not an option of curl"),
    ],
)
def test_a_command_that_there_is_not_is_found(line: str, why: str | None) -> None:
    found = wrong_with(line.split())
    assert (found is None) if why is None else (found and why in found)


def test_a_body_that_the_address_does_not_take_is_found() -> None:
    sent = ["curl", f"{SERVICE}/v1/advice", "--json"]
    assert wrong_with([*sent, '{"repo": "a/b", "hardware": "RTX 3090"}']) is None
    assert "hardwear" in (wrong_with([*sent, '{"repo": "a/b", "hardwear": "RTX 3090"}']) or "")


@pytest.mark.parametrize(
    ("mention", "wrong"),
    [
        ("advisor host run", False),
        ("advisor check … --log", False),
        ('advisor advise OWNER/NAME -H "$(advisor hardware --json)"', False),
        ("advisor host walk", True),
        ("advisor check --lag", True),
        ("curl http://127.0.0.1:8000/v1/advise", True),
        ("python -m bench.sped", True),
    ],
)
def test_a_mention_may_leave_out_arguments_but_names_what_there_is(mention: str, wrong: bool) -> None:
    assert bool(wrong_with_mention(mention)) is wrong
