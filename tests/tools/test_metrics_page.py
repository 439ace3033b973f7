"""tools/bench/metrics_page.py finds the series that are meant and no other."""

import metrics_page
import pytest

PAGE = metrics_page.samples("""# HELP calls of all kinds
# TYPE calls counter
calls{status="OK",code="0"} 3
calls{status="OK",code="1"} 4
calls{status="CANCELLED"} 5
calls_total 100

cpu_seconds 1.5e+01
""")


def test_the_series_of_a_name_are_added_up():
    assert metrics_page.total(PAGE, "calls") == metrics_page.value(PAGE, "calls") == 12
    assert metrics_page.value(PAGE, "cpu_seconds") == 15


def test_labels_choose_among_them():
    assert metrics_page.total(PAGE, "calls", 'status="OK"') == 7
    assert metrics_page.value(PAGE, "calls", 'status="OK"', 'code="1"') == 4


def test_a_series_that_is_not_there_is_told():
    assert metrics_page.total(PAGE, "calls", 'status="WRONG"') == 0
    for name, *labels in (("call",), ("calls", 'status="WRONG"')):
        with pytest.raises(LookupError, match=name):
            metrics_page.value(PAGE, name, *labels)
