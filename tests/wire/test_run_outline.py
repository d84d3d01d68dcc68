"""What a measurement of a config is: depths of the goal, within the context."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.goal import GoalRequest, resolve_goal
from service.engine.run_flags import RunFlags
from service.wire.agent import RunFile, RunOutline
from service.wire.run_outline import outline_of

FILES = (RunFile(path="Q8_0/m-00001-of-00002.gguf", size=1, sha256="0" * 64),)
CHAT = resolve_goal(GoalRequest(), 131_072)


def outline(flags: RunFlags) -> RunOutline:
    return outline_of("ik_llama.cpp", flags, CHAT, "someone/m-GGUF", "a" * 40, FILES, 10)


def test_a_run_measures_at_nothing_at_the_goal_s_depth_and_half_way() -> None:
    run = outline(RunFlags(n_ctx=16_384, n_ubatch=2048))
    assert (run.depths, run.n_prompt, run.n_gen, run.seconds) == ((0, 2000, 4000), 2048, 64, 600)


@pytest.mark.parametrize(("n_ctx", "n_ubatch"), [(1, 512), (512, 512), (600, 512), (4096, 4096), (4300, 512)])
def test_no_depth_is_deeper_than_the_context_has_room_for(n_ctx: int, n_ubatch: int) -> None:
    run = outline(RunFlags(n_ctx=n_ctx, n_ubatch=n_ubatch))
    assert max(run.depths) + run.n_prompt <= max(n_ctx, run.n_prompt)
    assert run.n_prompt <= n_ctx
    assert run.n_gen <= n_ctx
    assert msgspec.json.decode(msgspec.json.encode(run), type=RunOutline) == run
