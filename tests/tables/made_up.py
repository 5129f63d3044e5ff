"""A few made-up rows of the published tables that the recipes train on."""

import random
from pathlib import Path

COLUMNS = "longitude,latitude,housing_median_age,total_rooms,total_bedrooms,population,households,median_income"


def write(folder: Path) -> None:
    """Writes them where and as they are published."""
    adult, california = folder / "adult", folder / "california_housing"
    adult.mkdir(parents=True)
    california.mkdir()
    (adult / "adult.data").write_text("".join(f"{_person(number)}\n" for number in range(120)))
    (adult / "adult.test").write_text("|1x3 Cross validator\n" + "".join(f"{_person(n)}.\n" for n in range(120, 160)))
    (california / "housing.csv").write_text(
        f"{COLUMNS},median_house_value,ocean_proximity\n" + "".join(f"{_district(number)}\n" for number in range(200))
    )


def _person(number: int) -> str:
    draw = random.Random(number)
    age, years, hours = draw.randint(20, 70), draw.randint(5, 16), draw.randint(20, 60)
    work, job, country = draw.choice(["Private", "?"]), draw.choice(["Sales", "?"]), draw.choice(["Cuba", "Japan"])
    status, family = draw.choice([("Divorced", "Unmarried"), ("Never-married", "Own-child")])
    race, sex = draw.choice(["White", "Black"]), draw.choice(["Male", "Female"])
    school, gain, loss = f"{years}th", draw.choice([0, 2174]), draw.choice([0, 1902])
    income = ">50K" if age + hours + draw.randint(-9, 9) > 85 else "<=50K"
    fields = (age, work, 1000 + number, school, years, status, job, family, race, sex, gain, loss, hours, country)
    return ", ".join(map(str, (*fields, income)))


def _district(number: int) -> str:
    draw = random.Random(number)
    rooms, income = draw.randint(500, 5000), round(draw.uniform(1, 9), 4)
    bedrooms = "" if number % 25 == 0 else rooms // 5
    place = draw.choice(["INLAND", "INLAND", "NEAR BAY"])
    value = round(40_000 * income + (80_000 if place == "NEAR BAY" else 0) + draw.gauss(0, 5000))
    where = (round(draw.uniform(-124, -114), 2), round(draw.uniform(33, 42), 2), draw.randint(1, 52))
    return ",".join(map(str, (*where, rooms, bedrooms, rooms // 2, rooms // 6, income, value, place)))
