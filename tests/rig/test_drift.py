"""What `make drift` reports of a source tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.drift import report

PARSER = """
    add_opt(common_arg(
        {"-c", "--ctx-size"}, "N",
    add_opt(common_arg(
        {"--brand-new"}, "N",
"""
README = """
| `-c, --ctx-size N` | size of the context (default: 0, 0 = loaded from model) |
| `-cram, --cache-ram N` | the cache (default: 8192, -1 - no limit) |
| `--brand-new N` | what nobody knew (default: 7) |
| `--moe-cache-mib N` | GPU cache size in MiB (default: 0, disabled) |
"""


def tree(folder: Path, *, cache: int = 8192, builder: str = "one", line: str = "return f(x);") -> Path:
    """A tree of llama.cpp with what is read of one, in `folder`."""
    files = {
        "common/arg.cpp": PARSER,
        "tools/server/README.md": README.replace("8192", str(cache)),
        "src/llama-arch.cpp": '{ LLM_ARCH_LLAMA, "llama" },\n{ LLM_ARCH_NEVER, "never-heard-of" },\n',
        "src/llama-model.cpp": "case LLM_ARCH_LLAMA:\ncase LLM_ARCH_NEVER:\n" + "\n" * 1141 + line + "\n",
        "src/models/llama.cpp": builder,
        "ggml/src/ggml.c": '[GGML_TYPE_Q9_9] = {\n .type_name = "q9_9",\n},\n',
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("trees")
    before = tree(folder / "before", cache=4096, builder="another", line="return g(x);")
    return report(tree(folder / "now"), before)


def test_an_option_that_no_table_has_is_reported_and_a_noted_one_is_called_so(found: list[str]) -> None:
    # Both trees have them: what is new is what neither the tree before nor our tables have.
    assert not any("--brand-new" in line for line in found)
    assert "option --fit is gone" not in found  # the tree before had none either


def test_new_options_are_held_to_the_tables_without_a_tree_before(tmp_path: Path) -> None:
    lines = report(tree(tmp_path), None)
    assert "option --brand-new is new" in lines
    assert "option --moe-cache-mib is new (a note already: `newer` of options.json)" in lines
    assert "option --fit is gone" in lines


def test_another_default_is_reported(found: list[str]) -> None:
    assert "option --cache-ram has another default: 4096 -> 8192" in found


def test_architectures_and_types_beyond_the_tables_are_reported(found: list[str]) -> None:
    assert "architecture never-heard-of is new" in found
    assert "tensor type q9_9 is new" in found
    assert "architecture llama is new" not in found


def test_a_changed_builder_and_a_changed_cited_line_are_reported(found: list[str]) -> None:
    assert "graph builder src/models/llama.cpp changed" in found
    assert any("cites src/llama-model.cpp:1144: changed" in line for line in found)


def test_options_of_published_commands_that_the_parser_lacks_are_reported(found: list[str]) -> None:
    assert any(line.startswith("-ngl, in ") and line.endswith("is refused by the new parser") for line in found)
