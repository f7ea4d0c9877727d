"""The base class of all configurations, and `read`, which validates a raw one.

Configurations are frozen and keyword-only, and unknown keys are refused. `read` reports all problems at once, each with
the value, the cause and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from tidegate.contracts.errors import ConfigurationError, InvalidValue
from tidegate.contracts.validation import problems_of


def _types(annotation: Any) -> Iterator[Any]:
    """Yield the types of all values that an annotation allows."""
    origin = get_origin(annotation)
    if origin is None:
        yield annotation
    elif origin is Literal:
        yield from map(type, get_args(annotation))
    else:
        for part in get_args(annotation)[:1] if origin is Annotated else get_args(annotation):
            yield from _types(part)


class Config(BaseModel):
    """Base class of all configurations: frozen values, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __init__(self, /, **options: Any) -> None:
        """Check the options of a configuration that a program makes. Raise ConfigurationError with all problems."""
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise ConfigurationError(problems_of(error, type(self).__name__, _secrets(type(self)))) from None

    # Without this mark, pydantic would call `__init__` for each part of a configuration, and the problems of one part
    # would hide those of all others.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("*", mode="before")
    @classmethod
    def _a_boolean_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse a boolean where a number or a duration is expected: to Python and pydantic, True is 1."""
        if isinstance(value, bool) and info.field_name is not None:
            types = set(_types(cls.model_fields[info.field_name].annotation))
            if bool not in types and types & {int, float}:
                raise InvalidValue(
                    "a boolean, not a number or a duration", "write the number, or the duration with a unit"
                )
        return value


Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], raw: Mapping[str, Any], where: str = "") -> Model:
    """Return the configuration that `raw` describes. Raise ConfigurationError with all problems at once."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, where, _secrets(model))) from None


def _secrets(model: type[BaseModel]) -> list[str]:
    """Return the fields whose values must not be shown.

    These are fields of a secret type, and fields left out of `repr` because they contain secrets.
    """
    return [
        name for name, field in model.model_fields.items() if "SecretStr" in str(field.annotation) or not field.repr
    ]
