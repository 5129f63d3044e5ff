"""Three monthly series of different lengths and units: many series for one net, without a download."""

from typing import Literal

from src.data.series.air_passengers import FIRST_YEAR, THOUSANDS
from src.data.series.columns import Row
from src.data.series.series import Series

ACCIDENTAL_DEATHS = (  # in the USA, a line a year from 1973: Brockwell & Davis 1991
    (9007, 8106, 8928, 9137, 10017, 10826, 11317, 10744, 9713, 9938, 9161, 8927),
    (7750, 6981, 8038, 8422, 8714, 9512, 10120, 9823, 8743, 9129, 8710, 8680),
    (8162, 7306, 8124, 7870, 9387, 9556, 10093, 9620, 8285, 8466, 8160, 8034),
    (7717, 7461, 7767, 7925, 8623, 8945, 10078, 9179, 8037, 8488, 7874, 8647),
    (7792, 6957, 7726, 8106, 8890, 9299, 10625, 9302, 8314, 8850, 8265, 8796),
    (7836, 6892, 7791, 8192, 9115, 9434, 10484, 9827, 9110, 9070, 8633, 9240),
)
LUNG_DEATHS = (  # from lung diseases in the United Kingdom, a line a year from 1974: Diggle 1990, table A.3
    (3035, 2552, 2704, 2554, 2014, 1655, 1721, 1524, 1596, 2074, 2199, 2512),
    (2933, 2889, 2938, 2497, 1870, 1726, 1607, 1545, 1396, 1787, 2076, 2837),
    (2787, 3891, 3179, 2011, 1636, 1580, 1489, 1300, 1356, 1653, 2013, 2823),
    (3102, 2294, 2385, 2444, 1748, 1554, 1498, 1361, 1346, 1564, 1640, 2293),
    (2815, 3137, 2679, 1969, 1870, 1633, 1529, 1366, 1357, 1570, 1535, 2491),
    (3084, 2605, 2573, 2143, 1693, 1504, 1461, 1354, 1333, 1492, 1781, 1915),
)
SERIES = {  # first year and values
    "AccidentalDeaths": (1973, ACCIDENTAL_DEATHS),
    "AirPassengers": (FIRST_YEAR, THOUSANDS),
    "LungDeaths": (1974, LUNG_DEATHS),
}


class MonthlySeries(Series):
    """Accidental deaths in the USA, airline passengers and deaths from lung diseases in the UK; 72, 144 and 72 months.

    The series have no official split; the last 18 months of each are the test, the 18 months before them validation.

    Args:
        look_back: months that a forecast is made from, L.
        horizon: months that are forecast, H, at most 18.
        calendar: whether to add the month to the known covariates, as a sine and a cosine.
        scaling: `standard` subtracts the mean and divides by the standard deviation of the training months of a series;
            `none` does not.
        batch_size: windows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with inputs of `predict --input` that cannot be read: `stop` ends the run, `skip` leaves
            them out and counts them (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        as those of AirPassengers.
    """

    def __init__(
        self,
        look_back: int = 12,
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
            series="unique_id",
            time="ds",
            target="y",
            look_back=look_back,
            horizon=horizon,
            calendar=calendar,
            val_size=18,
            test_size=18,
            scaling=scaling,
            batch_size=batch_size,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
        )

    def read_rows(self) -> tuple[str, list[Row], list[tuple[str, str]]]:
        rows = [
            Row(f"{name}:{ds}", {"unique_id": name, "ds": ds, "y": value})
            for name, (first_year, years) in SERIES.items()
            for year, values in enumerate(years, first_year)
            for ds, value in ((f"{year}-{month:02}-01", value) for month, value in enumerate(values, 1))
        ]
        return "MonthlySeries", rows, []
