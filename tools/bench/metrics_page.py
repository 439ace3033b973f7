"""Reads a page of /metrics."""


def samples(page: str) -> dict[str, float]:
    """Series as written -> value."""
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def _values(page: dict[str, float], name: str, labels: tuple[str, ...]) -> list[float]:
    return [value for series, value in page.items()
            if series.split("{")[0] == name and all(label in series for label in labels)]


def total(page: dict[str, float], name: str, *labels: str) -> float:
    """The sum over the series of that name that have all these labels, as written: status="OK"."""
    return sum(_values(page, name, labels))


def value(page: dict[str, float], name: str, *labels: str) -> float:
    """The same where there has to be such a series; else LookupError."""
    values = _values(page, name, labels)
    if not values:
        raise LookupError(f"no metric {' '.join([name, *labels])}")
    return sum(values)
