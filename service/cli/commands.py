"""The benchmark commands of an advice, to be run by hand, and how to come back with what they print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.commands.shell import quote
from service.engine.hardware_text import to_shorthand
from service.wire.advice.advice import Advice
from service.wire.plain_text import clean


def bench_lines(advice: Advice, configs: Sequence[str] | None, source: str = "") -> Iterator[str]:
    """Yield, for each config (None: the first), its benchmark command, the check of what it prints, and how to send it.

    `source`: the advice's address, whose service is sent to.
    """
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
        yield "# then, measured next to predicted:"
        yield f"advisor check {quote(bench)} {model}--hardware {hardware} --log {log}"
        if source.startswith("http"):
            service = source.partition("/v1/")[0]
            yield "# and, to put it into the database, after you have seen all that is sent:"
            told = f"--command {quote(bench)} {model}--hardware {hardware}"
            yield f"advisor submit {log} --service {quote(service)} {told}"
