"""The unit that is shipped is one that systemd understands."""

import configparser
import os
import pathlib
import re
import shutil
import subprocess

import pytest

UNIT = pathlib.Path(__file__).parents[3] / "configs" / "systemd" / "refraind.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_verifies_the_unit(daemon_arguments, tmp_path):
    binary = os.path.abspath(daemon_arguments[0])

    def verify(text: str) -> subprocess.CompletedProcess:
        unit = tmp_path / "refraind.service"
        unit.write_text(text)
        return subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)],
                              capture_output=True, text=True, timeout=60)

    # The daemon of this build stands for the one that a package installs.
    text = UNIT.read_text().replace("/usr/bin/refraind", binary)
    done = verify(text)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"refraind\.service", done.stderr), done.stderr
    broken = verify(text.replace("Restart=on-failure", "Restart=sometimes"))
    assert "restart" in broken.stderr


# What is wrong at each start, a configuration or a model's path, is not tried for ever, however long a
# start takes to fail: systemd counts starts in a window, and one that is over begins anew.
def test_starts_that_fail_come_to_an_end():
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(UNIT)
    starts, within_s = (int(unit["Unit"].get(name, usual)) for name, usual in
                        (("StartLimitBurst", "5"), ("StartLimitIntervalSec", "10")))
    assert starts > 1  # one failure is none
    # Of a start that is ended because it takes too long, too.
    apart_s = sum(int(unit["Service"][name]) for name in
                  ("TimeoutStartSec", "TimeoutStopSec", "RestartSec"))
    assert starts * apart_s < within_s
