"""The airline passengers: a small public series without a download."""

from typing import Literal

from src.data.series.columns import Row
from src.data.series.series import Series

FIRST_YEAR = 1949
THOUSANDS = (  # passengers a month, a line a year: Box & Jenkins 1976, series G
    (112, 118, 132, 129, 121, 135, 148, 148, 136, 119, 104, 118),
    (115, 126, 141, 135, 125, 149, 170, 170, 158, 133, 114, 140),
    (145, 150, 178, 163, 172, 178, 199, 199, 184, 162, 146, 166),
    (171, 180, 193, 181, 183, 218, 230, 242, 209, 191, 172, 194),
    (196, 196, 236, 235, 229, 243, 264, 272, 237, 211, 180, 201),
    (204, 188, 235, 227, 234, 264, 302, 293, 259, 229, 203, 229),
    (242, 233, 267, 269, 270, 315, 364, 347, 312, 274, 237, 278),
    (284, 277, 317, 313, 318, 374, 413, 405, 355, 306, 271, 306),
    (315, 301, 356, 348, 355, 422, 465, 467, 404, 347, 305, 336),
    (340, 318, 362, 348, 363, 435, 491, 505, 404, 359, 310, 337),
    (360, 342, 406, 396, 420, 472, 548, 559, 463, 407, 362, 405),
    (417, 391, 419, 461, 472, 535, 622, 606, 508, 461, 390, 432),
)


class AirPassengers(Series):
    """Passengers of international airlines, 144 months from 1949 to 1960, in thousands (Box & Jenkins 1976).

    The series has no official split; the last 24 months are the test, the 24 months before them validation.

    Args:
        look_back: months that a forecast is made from, L.
        horizon: months that are forecast, H, at most 24.
        calendar: whether to add the month to the known covariates, as a sine and a cosine.
        scaling: `standard` subtracts the mean and divides by the standard deviation of the training months; `none` does
            not.
        batch_size: windows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with inputs of `predict --input` that cannot be read: `stop` ends the run, `skip` leaves
            them out and counts them (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        past (B, L, 1), scaled; with calendar, past_covariates (B, L, 2) and known_covariates (B, H, 2). target
        (B, H, 1), scaled; to predict, a dict as that of Series.
    """

    def __init__(
        self,
        look_back: int = 24,
        horizon: int = 12,
        calendar: bool = False,
        scaling: Literal["standard", "none"] = "standard",
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            root="",
            time="ds",
            target="y",
            look_back=look_back,
            horizon=horizon,
            calendar=calendar,
            val_size=24,
            test_size=24,
            scaling=scaling,
            batch_size=batch_size,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
        )

    def read_rows(self) -> tuple[str, list[Row], list[tuple[str, str]]]:
        months = [value for year in THOUSANDS for value in year]
        dates = [f"{FIRST_YEAR + number // 12}-{number % 12 + 1:02}-01" for number in range(len(months))]
        rows = [Row(f"AirPassengers:{ds}", {"ds": ds, "y": y}) for ds, y in zip(dates, months, strict=True)]
        return "AirPassengers", rows, []
