"""SQL functions with which views show numbers, Avro and Protobuf as typed columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidegate.contracts.config.option_types import ShownAs
from tidegate.operators.views import function_of, is_typed

if TYPE_CHECKING:
    import pyarrow as pa


def register_functions(spark: Any, formats: Iterable[ShownAs]) -> None:
    """Register the function of each typed format in the session.

    Spark calls one only where a query reads its column. Its worker needs what reads the values: the extra of their
    format, and the place of the schemas. Raise MissingExtra, or InvalidValue for a wrong schema.
    """
    for form in formats:
        if is_typed(form):
            spark.udf.register(function_of(form), _function(form))


def _function(form: ShownAs) -> Any:
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    from tidegate.kernels.codecs.shown import shown

    def shows(values: pa.Array) -> pa.Array:
        return shown(form).column(values)

    shows.__annotations__ = {}  # Spark would evaluate them without this module's names
    return arrow_udf(shows, from_arrow_type(shown(form).type, prefer_timestamp_ntz=True))
