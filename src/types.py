"""Numbers with a range, checked when the command line is parsed; plain numbers to the type checker."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    PositiveInt = int
    NonNegativeInt = int
    PositiveFloat = float
else:
    from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt

__all__ = ["NonNegativeInt", "PositiveFloat", "PositiveInt"]
