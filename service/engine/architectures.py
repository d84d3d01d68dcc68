"""Facts of architectures that no header says and every engine agrees on: `data/architectures.json`.

Which engine knows an architecture, and what it does with it, is in the engine's own table, in its folder.
Sources: load_hparams and the graphs of both engines.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from service.engine.tables import table_of


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is special about an architecture; the defaults hold for those that the table does not name.

    Where the header has no pattern of sliding windows, all layers but one in `window_period` have a window (0: none);
    the full one closes each period, or opens it (`full_layer_first`). `window`: its tokens where the header does not
    say. `windowed_layers`: only a model of as many layers has windows at all.
    `parallel`: attention and a recurrent state run side by side on the same input. `sigmoid_router`: the router's
    activation where the header does not say, else softmax. `layers_by_number`: layers differ by their number alone,
    or read the cache or a result of a layer further back. `rope_factors_of_full_layers`: windowed layers turn without
    them. `trained_in_mxfp4`: its experts were trained in that type. `linear_attention`: layers with a second norm keep
    a state for each head in place of keys and values, and no window. `compressed_rows`: its layers attend to a window
    and to rows that stand for several tokens each. `purpose`: what it does, whatever the header says.
    """

    window_period: int = 0
    full_layer_first: bool = False
    window: int = 0
    windowed_layers: int | None = None
    parallel: bool = False
    sigmoid_router: bool = False
    layers_by_number: bool = False
    rope_factors_of_full_layers: bool = False
    trained_in_mxfp4: bool = False
    linear_attention: bool = False
    compressed_rows: bool = False
    purpose: Literal["text", "embeddings", "diffusion", "encoder-decoder"] = "text"


_USUAL = Architecture()


def architecture(name: str) -> Architecture:
    """Return what is special about an architecture (`general.architecture` of a header)."""
    return _table().get(name, _USUAL)


@cache
def _table() -> dict[str, Architecture]:
    return table_of("architectures.json", dict[str, Architecture])
