"""No advice breaks a rule, and a check of its command gives its figures back."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.hardware import Hardware
from tests import rigs
from tests.engine.planner.asking import ask
from tests.models import build
from tests.sampling import some_of

CASES = (
    ("Qwen3-235B-A22B", "q4_K_M", rigs.ONE_3090_DESKTOP),
    ("DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0", rigs.TWO_5090_TWO_4090),
    ("Llama-3.3-70B", "q4_K_M", rigs.ONE_3090_DESKTOP),
    ("Qwen3-30B-A3B", "q4_K_M", rigs.LAPTOP_6GB),
    ("GLM-4.5-Air", "q4_K_M", rigs.EIGHT_3090),
    ("Qwen3-30B-A3B", "q8_0", rigs.TWO_EPYC_NO_GPU),
)


@pytest.mark.parametrize(
    ("name", "mix", "hardware"), some_of(CASES, 3), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_commands_of_an_advice_pass_with_its_figures(name: str, mix: str, hardware: Hardware) -> None:
    rig = resolve(hardware)
    configs = ask(name, mix, hardware=hardware).configs
    assert configs
    for config in configs:
        report = check(config.commands.server, config.engine, build(name, mix), rig)
        assert report.fits
        assert [(f.rule, f.message) for f in report.findings if f.severity != "info"] == []
        stated = [msgspec.structs.replace(row, reserve_mib=0.0) for row in config.devices]
        assert report.memory.devices == stated
