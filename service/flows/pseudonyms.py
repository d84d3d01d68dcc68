"""Names for hosts that say nothing of them: `quiet-heron-417`."""

from __future__ import annotations

import secrets

_FIRST = (
    "amber autumn brave bright calm clever copper coral crisp curious dapper eager early fair fleet gentle glad"
    " golden grand green happy hardy hidden honest humble ivory jolly keen kind late light lively lucky mellow"
    " merry mild misty noble north olive patient plain proud quick quiet rapid rare ready rosy royal rustic sandy"
    " sharp shy silent silver smart snowy solid spry steady stern still stout sunny swift tall tidy tiny true"
    " velvet vivid warm wild wise witty"
)
_SECOND = (
    "acorn alder ant arch ash aspen badger beacon bear beech birch bison boulder brook canyon cedar cliff clover"
    " comet condor coyote crane creek crow cypress dale delta dove dune eagle elk elm ember falcon fern finch"
    " fjord forest fox garnet geyser glade grove gull hare harbor hawk hazel heron hill ibis island ivy jade jay"
    " kestrel lagoon lake lark laurel lynx maple marsh meadow mesa moss moth newt oak orca osprey otter owl peak"
    " pebble pine plover pond poplar quartz raven reed reef ridge river robin sage salmon seal shore sparrow"
    " spruce stag stork swan thrush tide trout tulip tundra valley vole walnut wave willow wolf wren yew"
)


def new_pseudonym() -> str:
    """Return a random name, one of some eight million."""
    number = 100 + secrets.randbelow(900)
    return f"{secrets.choice(_FIRST.split())}-{secrets.choice(_SECOND.split())}-{number}"
