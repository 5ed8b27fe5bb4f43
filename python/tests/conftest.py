"""With RELPOS_NO_SKIPS=1, which tools/python.sh --torch sets, a skipped test fails unless its reason contains an entry
of ALLOWED. Installing packages cannot avoid those skips.  SPDX-License-Identifier: Apache-2.0"""
import os
import sys

import pytest
from levels import levels_end

ALLOWED = ("no GPU", "'xformers", "AMX alone", "NumPy keeps one order")
STRICT = os.environ.get("RELPOS_NO_SKIPS") == "1"


def refuse(report):
    """Turn a skipped report into a failed one."""
    if STRICT and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(word in reason for word in ALLOWED):
            report.outcome, report.longrepr = "failed", f"RELPOS_NO_SKIPS=1: {reason}"
    return report


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    refuse((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    refuse((yield).get_result())


@pytest.fixture(autouse=True)
def no_levels_of_transforms():
    yield
    if "torch" in sys.modules:
        levels_end()
