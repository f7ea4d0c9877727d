"""Windows that keep their elements, for evictors and for aggregates that need them (FLIP-4)."""

from tidegate.operators.windowed_aggregation.elements.functions import functions_of
from tidegate.operators.windowed_aggregation.elements.state import ElementsState, damage_of, layout_of
from tidegate.operators.windowed_aggregation.elements.tables import COLUMNS, SLOT

__all__ = ["COLUMNS", "SLOT", "ElementsState", "damage_of", "functions_of", "layout_of"]
