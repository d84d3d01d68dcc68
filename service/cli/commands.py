"""The benchmark commands of an advice, to be run by hand, and how to come back with what they print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.commands.shell import quote
from service.engine.hardware_text import to_shorthand
from service.wire.advice import Advice
from service.wire.text import clean


def bench_lines(advice: Advice, configs: Sequence[str] | None) -> Iterator[str]:
    """Yield, for each config (None: the first), its benchmark command and the check of what it prints."""
    wanted = configs or [advice.configs[0].id]
    for config in advice.configs:
        if config.id not in wanted:
            continue
        log = f"bench-{config.rank}.log"
        bench = clean(config.commands.bench)
        model = f"--model {quote(f'{advice.repo}:{config.variant}')} " if advice.revision else ""
        hardware = quote(to_shorthand(advice.hardware))
        yield f"# #{config.rank}: {clean(config.variant)} with {config.engine}"
        yield f"{bench} 2>&1 | tee {log}"
        yield "# then, measured beside predicted:"
        yield f"advisor check {quote(bench)} {model}--hardware {hardware} --log {log}"
