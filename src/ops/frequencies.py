"""Steps of time series: a fixed duration, business days, or months, and the calendar of a point in time.

Points in time are seconds since 1970 in the series' own time zone. A frequency is written as in pandas: `15min`, `h`,
`D`, `W`, `B` (Monday to Friday), `MS` and `ME` (first and last day of a month), `QS`, `QE`, `YS`, `YE`, with a number
in front for several steps, as `6h`. `M-15` is the 15th of every month.
"""

import math
import re
from typing import Literal, NamedTuple

import numpy as np

DAY_S = 86_400
SECONDS = {"W": 7 * DAY_S, "D": DAY_S, "h": 3600, "min": 60, "s": 1}  # from long to short
MONTHS = {"Y": 12, "Q": 3, "M": 1}
WORDS = {"minutes": "min", "hourly": "h", "daily": "D", "business days": "B", "weekly": "W"}
WORDS |= {"monthly": "M", "quarterly": "Q", "yearly": "Y", "H": "h", "T": "min"}  # the last two: pandas before 2.2
PERIODS = ("minute", "hour", "weekday", "day", "month")
Seconds = np.ndarray  # int64


class Frequency(NamedTuple):
    """A regular step.

    Args:
        unit: seconds, business days or months.
        count: number of them in a step.
        day: day of the month; in shorter months, their last day. 0 if it is not known yet, or of another unit.
    """

    unit: Literal["seconds", "business days", "months"]
    count: int
    day: int = 0

    def __str__(self) -> str:
        if self.unit == "business days":
            name, size = "B", 1
        elif self.unit == "months":
            letter, size = next((key, size) for key, size in MONTHS.items() if self.count % size == 0)
            name = letter + {0: "", 1: "S", 31: "E"}.get(self.day, f"-{self.day}")
        else:
            name, size = next((key, size) for key, size in SECONDS.items() if self.count % size == 0)
        number = self.count // size
        return name if number == 1 else f"{number}{name}"


def parse_frequency(text: str) -> Frequency:
    """The frequency that a text means, such as `15min`, `business days` or `MS`.

    Raises:
        ValueError: it means none.
    """
    number, name = re.fullmatch(r"\s*(\d*)\s*(.*?)\s*", text, re.DOTALL).groups()  # type: ignore[union-attr]
    name = WORDS.get(name, name)
    count = int(number or 1)
    month = re.fullmatch(r"([YQM])(S|E|-[1-9]|-[12]\d|-3[01]|)", name)
    if count and name in SECONDS:
        return Frequency("seconds", count * SECONDS[name])
    if count and name == "B":
        return Frequency("business days", count)
    if count and month:
        day = {"": 0, "S": 1, "E": 31}.get(month[2]) if not month[2].startswith("-") else int(month[2][1:])
        return Frequency("months", count * MONTHS[month[1]], day or 0)
    names = ", ".join(["15min", "h", "D", "B", "W", "MS", "ME", "QS", "YS"])
    raise ValueError(f"frequency: expected a step such as {names}, got {text!r}")


def infer_frequency(series: list[Seconds]) -> Frequency | None:
    """The step of some series: business days, months, or else the most common difference of neighbours.

    Args:
        series: ascending points in time of each series, without duplicates.

    Returns:
        The frequency; None if no series has two points.
    """
    series = [points for points in series if len(points) > 1]
    if not series:
        return None
    points = np.concatenate(series)
    steps = np.concatenate([np.diff(own) for own in series])
    if len(np.unique(points % DAY_S)) == 1:
        if day := _day_of_month(points):
            months = np.concatenate([np.diff(_months(own)) for own in series])
            if months.min() > 0:
                return Frequency("months", int(np.gcd.reduce(months)), day)
        is_weekend = _weekdays(points) >= 5
        if not is_weekend.any() and steps.min() == DAY_S and ((steps == 3 * DAY_S) & _is_friday(series)).any():
            return Frequency("business days", 1)
    values, counts = np.unique(steps, return_counts=True)
    return Frequency("seconds", int(values[counts.argmax()]))


def complete(frequency: Frequency, points: Seconds) -> Frequency:
    """The frequency with the day of the month of some points, if it is one of months without a day."""
    if frequency.unit != "months" or frequency.day:
        return frequency
    return frequency._replace(day=_day_of_month(points) or int(_days(points).max()))


def step_numbers(points: Seconds, frequency: Frequency) -> tuple[Seconds, np.ndarray]:
    """Counts the steps from the first point.

    Args:
        points: ascending points in time.
        frequency: their step.

    Returns:
        Number of each point (T,), and whether it lies on the grid of most of them (T,).
    """
    base, rest = _split(points, frequency)
    is_regular = rest == _mode(rest)
    phase = _mode(base[is_regular] % frequency.count)
    numbers = (base - phase) // frequency.count
    return numbers - numbers[:1], is_regular & (base % frequency.count == phase)


def later(points: Seconds, frequency: Frequency, steps: Seconds | int) -> Seconds:
    """The points in time some steps after others."""
    base, rest = _split(points, frequency)
    base, time_of_day = base + np.asarray(steps) * frequency.count, rest % DAY_S
    if frequency.unit == "seconds":
        return base
    if frequency.unit == "business days":
        return np.busday_offset(np.datetime64("1970-01-01"), base).astype(np.int64) * DAY_S + time_of_day
    return _first_days(base, frequency.day) * DAY_S + time_of_day


def future_steps(origin: int, frequency: str, count: int, time_zone: str = "") -> list[str]:
    """Names the points in time after an origin.

    Args:
        origin: the last known point, in seconds since 1970.
        frequency: the step, as in the facts of the data.
        count: number of points.
        time_zone: their offset from UTC, such as +02:00, or empty.

    Returns:
        Texts such as `2017-10-20 00:00:00`.
    """
    return names_of(later(np.full(count, origin), parse_frequency(frequency), np.arange(1, count + 1)), time_zone)


def names_of(points: Seconds, time_zone: str = "") -> list[str]:
    """Texts such as `2017-10-20 00:00:00`, followed by the offset from UTC if there is one."""
    texts = np.datetime_as_string(np.asarray(points).astype("datetime64[s]"))
    return [text.replace("T", " ") + time_zone for text in texts.tolist()]


def season_length(frequency: str) -> int:
    """Steps of a usual season: a day of shorter steps, a week of days, a year of weeks, months and quarters.

    Args:
        frequency: the step, as in the facts of the data.
    """
    unit, count, _ = parse_frequency(frequency)
    if unit == "months":
        return max(12 // count, 1)
    if unit == "business days":
        return max(5 // count, 1)
    season_s = next((length for length in (DAY_S, 7 * DAY_S) if count < length), 52 * 7 * DAY_S)
    return max(season_s // count, 1)


def calendar_names(frequency: Frequency) -> list[str]:
    """Names of the calendar features of a frequency: a sine and a cosine of every period longer than a step.

    Steps below an hour have the minute, those below a day the hour, those below a week the weekday, those below a month
    the day of the month, and those below a year the month.
    """
    month_s = 28 * DAY_S
    lengths = {"seconds": 1, "business days": DAY_S, "months": month_s}
    step_s = frequency.count * lengths[frequency.unit]
    limits = {"minute": 3600, "hour": DAY_S, "weekday": 7 * DAY_S, "day": month_s, "month": 12 * month_s}
    return [f"{period}_{part}" for period in PERIODS if step_s < limits[period] for part in ("sin", "cos")]


def calendar_features(points: Seconds, frequency: Frequency) -> np.ndarray:
    """Sine and cosine of the position in each period (T, F), in the order of `calendar_names`."""
    shares = {
        "minute": points % 3600 / 3600,
        "hour": points % DAY_S // 3600 / 24,
        "weekday": _weekdays(points) / 7,
        "day": (_days(points) - 1) / 31,
        "month": _months(points) % 12 / 12,
    }
    periods = [name.removesuffix("_sin") for name in calendar_names(frequency) if name.endswith("_sin")]
    angles = np.stack([2 * math.pi * shares[period] for period in periods], axis=1) if periods else np.zeros((0, 0))
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=2)  # (T, F / 2, 2)
    return pairs.reshape(len(points), 2 * len(periods))  # (T, F)


def _split(points: Seconds, frequency: Frequency) -> tuple[Seconds, Seconds]:
    """Whole seconds, business days or months since 1970, and the seconds beyond the point that they name."""
    points = np.asarray(points)
    if frequency.unit == "seconds":
        return points, np.zeros_like(points)
    if frequency.unit == "business days":
        days = np.busday_offset((points // DAY_S).astype("datetime64[D]"), 0, roll="backward")
        return np.busday_count("1970-01-01", days), points - days.astype(np.int64) * DAY_S
    months = _months(points)
    return months, points - _first_days(months, frequency.day) * DAY_S


def _first_days(months: np.ndarray, day: int) -> np.ndarray:
    """Days since 1970 of a day of some months, or of their last day if they are shorter."""
    first, after = (
        part.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for part in (months, months + 1)
    )
    return np.minimum(first + max(day, 1) - 1, after - 1)


def _months(points: Seconds) -> np.ndarray:
    return np.asarray(points).astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)


def _days(points: Seconds) -> np.ndarray:
    """Day of the month, from 1."""
    return np.asarray(points) // DAY_S - _first_days(_months(points), 1) + 1


def _weekdays(points: Seconds) -> np.ndarray:
    return (np.asarray(points) // DAY_S + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0


def _is_friday(series: list[Seconds]) -> np.ndarray:
    """Whether a step begins on a Friday."""
    return np.concatenate([_weekdays(points[:-1]) == 4 for points in series])


def _day_of_month(points: Seconds) -> int:
    """The day of the month that all points have, 31 for the last one; 0 if there is none."""
    days, months = _days(points), _months(points)
    day = int(days.max())
    last = _first_days(months, 31) - _first_days(months, 1) + 1
    if (days == last).all():
        return 31
    return day if (days == np.minimum(day, last)).all() else 0


def _mode(values: np.ndarray) -> int:
    distinct, counts = np.unique(values, return_counts=True)
    return int(distinct[counts.argmax()])
