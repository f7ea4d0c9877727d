"""Windows that keep their elements, for evictors and aggregates that need them (FLIP-4).

May import: contracts, kernels, operators.
"""

from tidegate.operators.windows.elements.functions import functions_of
from tidegate.operators.windows.elements.state import ElementsState, damage_of, layout_of
from tidegate.operators.windows.elements.tables import COLUMNS, SLOT

__all__ = ["COLUMNS", "SLOT", "ElementsState", "damage_of", "functions_of", "layout_of"]
