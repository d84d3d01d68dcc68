"""Hardware as JSON: the API's own shape."""

from __future__ import annotations

import msgspec

from service.engine.catalogue.limits import check
from service.engine.decoding import wrong_value
from service.engine.errors import InvalidHardware
from service.engine.hardware import Hardware

_FORM = '`{"gpus": [{"name": "RTX 3090", "count": 2}], "cpu": {"model": …}, "ram": {"total_gb": …}}`'
_OWN = b"gpus"


def read_json(text: str) -> Hardware | None:
    """Return the hardware that a JSON text states, None when it is no JSON of ours. Raises InvalidHardware."""
    data = text.strip().encode()
    if not data.startswith(b"{") or _OWN not in data:
        return None
    try:
        hardware = msgspec.json.decode(data, type=Hardware)
    except msgspec.ValidationError as error:
        reason, path, choices = wrong_value(error, Hardware)
        field = f"hardware.{path}" if path else "hardware"
        raise InvalidHardware(f"{reason}; the form is {_FORM}", field=field, choices=choices) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidHardware(
            f"this begins like JSON but is not: {error}; the form is {_FORM}", field="hardware"
        ) from error
    check(hardware)
    return hardware
