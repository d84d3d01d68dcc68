"""What requests bring: query parameters as one Struct, which the handler names in `opt` as its `query`, and bodies,
JSON only. Both are decoded strictly; errors name the wrong parameter or the path of the wrong value.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from litestar.dto import AbstractDTO
from litestar.dto.data_structures import DTOFieldDefinition
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.openapi.spec import Reference, Schema
from litestar.params import HeaderParameter, QueryParameter
from litestar.typing import FieldDefinition

from service.engine.decoding import in_words, near, refused
from service.engine.errors import AdvisorError, InvalidInput
from service.web.http.types import HttpRequest

Asked = TypeVar("Asked", bound=msgspec.Struct)
T = TypeVar("T")
_WITH_BODY = ("POST", "PUT", "PATCH")


def parameters_of(handler: BaseRouteHandler) -> dict[str, str]:
    """Return a handler's query parameters: public names by the names of its arguments."""
    declared = {name: one.kwarg_definition for name, one in handler.parsed_fn_signature.parameters.items()}
    own = {name: one.name or name for name, one in declared.items() if isinstance(one, QueryParameter)}
    return own | {name: name for name in getattr(handler.opt.get("query"), "__struct_fields__", ())}


async def require_understood(request: HttpRequest) -> None:
    """Refuse unknown and repeated parameters instead of guessing what is meant.

    Raises InvalidInput with its name.
    """
    given = [name for name, _ in request.query_params.multi_items()]
    known = tuple(parameters_of(request.route_handler).values()) if given else ()
    for i, name in enumerate(given):
        if name not in known:
            raise InvalidInput(
                f"there is no parameter {name[:100]!r} here",
                field=name.replace("\x00", "")[:100] or "query",
                choices=near(name[:100], known) or known,
            )
        if name in given[:i]:
            raise InvalidInput(f"{name[:100]!r} is given twice", field=name[:100])


def query_of(request: HttpRequest, kind: type[Asked]) -> Asked:
    """Return the query as a `kind`; an empty value counts as none, as forms send it.

    Raises InvalidInput with the name of the wrong parameter.
    """
    names = [field.name for field in msgspec.structs.fields(kind)]
    given = {name: value for name, value in request.query_params.multi_items() if value and name in names}
    for name, value in given.items():
        if "\x00" in value:
            raise InvalidInput("no name has the character NUL", field=name)
    try:
        with refused(kind):
            found = msgspec.convert(given, kind, strict=False)
    except InvalidInput as error:
        error.detail = in_words(error.detail)
        raise
    ignored = next((name for name in given if getattr(found, name) is None), None)
    if ignored is not None:  # "null", which msgspec treats as absent
        raise InvalidInput(f"{given[ignored]} is not a value: leave {ignored} out for none", field=ignored)
    return found


class MalformedJson(AdvisorError):
    """The body is not JSON."""

    problem = "malformed-json"


class JsonBody(AbstractDTO[Any]):
    """Decodes handlers' `data` from the raw body, and unlike Litestar accepts no number written as a string."""

    @classmethod
    def create_for_field_definition(cls, field_definition: FieldDefinition, *args: Any, **kwargs: Any) -> None:
        """Create nothing, because the Struct itself is decoded."""

    @classmethod
    def generate_field_definitions(cls, model_type: type[Any]) -> Generator[DTOFieldDefinition, None, None]:
        """Yield nothing, because the Struct itself is decoded."""
        yield from ()

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        """Return False, because the Struct itself is decoded."""
        return False

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Reference | Schema:
        """Return the schema of the Struct."""
        schema: Reference | Schema = schema_creator.for_field_definition(field_definition)
        return schema

    def decode_bytes(self, value: bytes) -> Any:
        """Return the decoded body. Raises as `decoded`."""
        return decoded(value, self.asgi_connection.route_handler.parsed_data_field.annotation)


def decoded(body: bytes, kind: type[T]) -> T:
    """Return a body as `kind`. Raises InvalidInput, with the path and the valid values, or MalformedJson.

    A byte order mark is passed over, as RFC 8259 allows: some editors put it before any text.
    """
    try:
        with refused(kind):
            return msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8), type=kind)
    except UnicodeDecodeError as error:  # its position is that in a text, not in the body
        raise MalformedJson(f"JSON must be UTF-8: invalid character (byte {_first_wrong(body)})") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedJson(str(error)) from error


def _first_wrong(body: bytes) -> int:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def declared_type(request: HttpRequest) -> str:
    """Return the media type that a request declares, without parameters; empty if it declares none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def require_json(request: HttpRequest) -> None:
    """Refuse a body that is not declared as JSON (415), or is empty (400)."""
    if request.method not in _WITH_BODY:
        return
    declared = declared_type(request)
    if declared != "application/json":
        shown = f"it is declared as {declared[:80]}" if declared else "nothing says what it is"
        raise HTTPException(status_code=415, detail=f"the body must be application/json; {shown}")
    if not await request.body():
        raise MalformedJson("the body is empty")


_KEY = re.compile(r"[\x21-\x7e]{1,200}")
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="Makes it safe to send the same request again.",
        schema_extra={"pattern": f"^{_KEY.pattern}$"},
    ),
]


def checked(key: str | None) -> str | None:
    """Return the key sent with a request. Raises InvalidInput for a malformed one."""
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidInput("the key has 1 to 200 printable characters", field="Idempotency-Key")
    return key
